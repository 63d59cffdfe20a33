"""Checkpoints: the pages up to a position and the state image at it, one unit. Knows labels, not what they are worth.

Pages without an image or an image without pages can't exist: only this file makes, moves and drops them, always both. A
checkpoint lives as long as some continuation's label is on it; several may share one (a common head, a fork).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from engine.api import AnchorKind, CheckpointId, CheckpointInfo, ContinuationId, TenantKey, Tier
from engine.cache.arena import Arena
from engine.cache.images import Images
from engine.cache.pages import Page, Pages
from engine.cache.prefix_index import PrefixIndex, Walk
from engine.planner.residency import Label


@dataclass(slots=True, eq=False)
class Checkpoint:
    """The state of `tenant` after `position` tokens of one line. All of `pages` and `image` (cells of `tier`) are in one tier;
    of the last page the tokens up to `position` count, whatever its writer adds.
    """

    key: int
    tenant: TenantKey
    position: int
    pages: tuple[Page, ...]
    image: tuple[int, ...]
    tier: Tier
    labels: dict[ContinuationId, Label]


class Checkpoints:
    """All checkpoints. Callers make room in a tier before they put something there."""

    def __init__(
        self, pages: Pages, images: Images, index: PrefixIndex[Checkpoint], prefix: str
    ) -> None:
        self._pages = pages
        self._images = images
        self._index = index
        self._prefix = prefix
        self._serial = 0
        self.all: dict[int, Checkpoint] = {}
        self.of: dict[ContinuationId, dict[CheckpointId, Checkpoint]] = {}

    @property
    def image_cells(self) -> int:
        return self._images.cells

    def walk(self, tenant: TenantKey, line: memoryview) -> Walk[Checkpoint]:
        return self._index.walk(tenant, line)

    def on_tier(self, tier: Tier) -> list[Checkpoint]:
        return [checkpoint for checkpoint in self.all.values() if checkpoint.tier is tier]

    def save(
        self, lane: int, tenant: TenantKey, line: memoryview, position: int, pages: Iterable[Page]
    ) -> Checkpoint:
        """A checkpoint on the device of the lane's state, which stands exactly at `position` of `line`. The caller labels it."""
        held = tuple(pages)
        image = self._write_image(lane, self._pages.device)
        self._pages.hold_on_device(held)
        return self._keep(tenant, line, position, held, image, Tier.DEVICE)

    def save_on_host(
        self, lane: int, tenant: TenantKey, line: memoryview, position: int, pages: Iterable[Page]
    ) -> Checkpoint:
        """The same on the host."""
        held = tuple(pages)
        image = self._write_image(lane, self._pages.host)
        self._pages.hold_on_host(held, self._tail_tokens(position))
        return self._keep(tenant, line, position, held, image, Tier.HOST)

    def host_cells_missing(self, pages: Iterable[Page]) -> int:
        """What a checkpoint of these pages would take on the host."""
        return self._pages.host_cells_missing(pages) + self._images.cells

    def demote(self, checkpoint: Checkpoint) -> None:
        """Device → host, pages and image together; the host has the room."""
        assert checkpoint.tier is Tier.DEVICE
        self._pages.hold_on_host(checkpoint.pages, self._tail_tokens(checkpoint.position))
        image = self._pages.host.allocate(len(checkpoint.image))
        self._pages.host.write(image, self._pages.device.read(checkpoint.image))
        self._pages.device.release(checkpoint.image)
        self._pages.release_on_device(checkpoint.pages)
        checkpoint.image, checkpoint.tier = image, Tier.HOST

    def unpack(self, checkpoint: Checkpoint, lane: int) -> None:
        """The checkpoint's state becomes the lane's."""
        self._images.unpack(lane, self._arena(checkpoint.tier).read(checkpoint.image))

    def drop(self, checkpoint: Checkpoint) -> tuple[CheckpointInfo, ...]:
        """Ends it; returns what it was under each label."""
        infos = tuple(self.info(checkpoint, label) for label in checkpoint.labels.values())
        for label in tuple(checkpoint.labels.values()):
            self._unregister(checkpoint, label)
        self._forget(checkpoint)
        return infos

    def label(
        self, checkpoint: Checkpoint, continuation: ContinuationId, kind: AnchorKind
    ) -> Label:
        """Puts the continuation's label on it, or renews the one it has (same id, new kind and age)."""
        self._serial += 1
        known = checkpoint.labels.get(continuation)
        name = known.checkpoint if known else CheckpointId(f"{self._prefix}{self._serial}")
        label = Label(name, continuation, kind, self._serial)
        checkpoint.labels[continuation] = label
        self.of.setdefault(continuation, {})[name] = checkpoint
        return label

    def unlabel(self, checkpoint: Checkpoint, continuation: ContinuationId) -> CheckpointInfo:
        """Takes the label off and, with the last one, ends the checkpoint."""
        label = checkpoint.labels[continuation]
        info = self.info(checkpoint, label)
        self._unregister(checkpoint, label)
        if not checkpoint.labels:
            self._forget(checkpoint)
        return info

    def info(self, checkpoint: Checkpoint, label: Label) -> CheckpointInfo:
        """Bytes are those that would come free if this label went."""
        alone = len(checkpoint.labels) == 1
        own = sum(page.device + page.host == 1 for page in checkpoint.pages)
        return CheckpointInfo(
            checkpoint=label.checkpoint,
            continuation=label.continuation,
            kind=label.kind,
            position=checkpoint.position,
            tier=checkpoint.tier,
            bytes=(own + len(checkpoint.image)) * self._pages.device.cell_bytes if alone else 0,
        )

    def bytes_of(self, checkpoints: Iterable[Checkpoint]) -> int:
        """All that these hold together, each page once in each tier."""
        cells = 0
        seen: set[tuple[Tier, int]] = set()
        for checkpoint in checkpoints:
            cells += len(checkpoint.image)
            seen.update((checkpoint.tier, id(page)) for page in checkpoint.pages)
        return (cells + len(seen)) * self._pages.device.cell_bytes

    def _write_image(self, lane: int, arena: Arena) -> tuple[int, ...]:
        """The lane's state in cells of its own; none are taken if that fails."""
        image = arena.allocate(self._images.cells)
        try:
            arena.write(image, self._images.pack(lane))
        except Exception:
            arena.release(image)
            raise
        return image

    def _keep(
        self,
        tenant: TenantKey,
        line: memoryview,
        position: int,
        pages: tuple[Page, ...],
        image: tuple[int, ...],
        tier: Tier,
    ) -> Checkpoint:
        assert len(pages) * self._pages.page_tokens >= position > 0
        self._serial += 1
        checkpoint = Checkpoint(self._serial, tenant, position, pages, image, tier, {})
        self.all[checkpoint.key] = checkpoint
        self._index.add(checkpoint, line, pages)
        return checkpoint

    def _unregister(self, checkpoint: Checkpoint, label: Label) -> None:
        del checkpoint.labels[label.continuation]
        known = self.of[label.continuation]
        del known[label.checkpoint]
        if not known:
            del self.of[label.continuation]

    def _forget(self, checkpoint: Checkpoint) -> None:
        del self.all[checkpoint.key]
        self._index.remove(checkpoint)
        self._arena(checkpoint.tier).release(checkpoint.image)
        if checkpoint.tier is Tier.DEVICE:
            self._pages.release_on_device(checkpoint.pages)
        else:
            self._pages.release_on_host(checkpoint.pages)

    def _arena(self, tier: Tier) -> Arena:
        return self._pages.device if tier is Tier.DEVICE else self._pages.host

    def _tail_tokens(self, position: int) -> int:
        return position - (position - 1) // self._pages.page_tokens * self._pages.page_tokens
