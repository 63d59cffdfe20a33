"""Checkpoints: the pages up to a position and the state image at it, one unit. Knows labels, not what they are worth.

Pages without an image or an image without pages can't exist: only this file makes, moves and drops them, always both. A
checkpoint lives as long as some continuation's label is on it; several may share one (a common head, a fork). It may have
a copy on disk beside its place in memory, or be there only.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from engine.api import AnchorKind, CheckpointId, CheckpointInfo, ContinuationId, TenantKey, Tier
from engine.cache.arena import Arena
from engine.cache.disk_tier import Copy, DiskTier, StoredPage
from engine.cache.images import Images
from engine.cache.pages import Page, Pages
from engine.cache.prefix_index import TOKEN_BYTES, PrefixIndex, Walk
from engine.cache.ranking import Ranking
from engine.planner.residency import Label


@dataclass(slots=True, eq=False)
class Checkpoint:
    """The state of `tenant` after `position` tokens of one line. All of `pages` and `image` (cells of `tier`) are in one tier;
    of the last page the tokens up to `position` count, whatever its writer adds. In tier DISK both are empty and the `copy` is
    complete; elsewhere it may be missing or under way.
    """

    key: int
    tenant: TenantKey
    position: int
    pages: tuple[Page, ...]
    image: tuple[int, ...]
    tier: Tier
    labels: dict[ContinuationId, Label]
    copy: Copy | None = None

    @property
    def on_disk(self) -> bool:
        return self.copy is not None and self.copy.complete


class Checkpoints:
    """All checkpoints. Callers make room in a tier before they put something there. `serial` rises with each label and checkpoint;
    `relabelled` are keys of those whose labels on disk are old.
    """

    def __init__(
        self,
        pages: Pages,
        images: Images,
        index: PrefixIndex[Checkpoint],
        prefix: str,
        ranking: Ranking,
        disk: DiskTier | None = None,
    ) -> None:
        self._pages = pages
        self._images = images
        self._index = index
        self._prefix = prefix
        self._ranking = ranking
        self._disk = disk
        self.serial = 0
        self.relabelled: dict[int, None] = {}
        self.all: dict[int, Checkpoint] = {}
        self.of: dict[ContinuationId, dict[CheckpointId, Checkpoint]] = {}

    @property
    def image_cells(self) -> int:
        return self._images.cells

    def line(self, checkpoint: Checkpoint) -> bytes:
        """Its tokens. O(position)."""
        return self._index.line(checkpoint)

    def walk(self, tenant: TenantKey, line: memoryview) -> Walk[Checkpoint]:
        return self._index.walk(tenant, line)

    def shareable(self, tenant: TenantKey, line: memoryview, count: int) -> list[Page | None]:
        """For each of the line's first `count` full pages one that some checkpoint holds with equal tokens, if there's one."""
        return self._index.shareable(tenant, line, count)

    def save(
        self, lane: int, tenant: TenantKey, line: memoryview, position: int, pages: Iterable[Page]
    ) -> Checkpoint:
        """A checkpoint on the device of the lane's state, which stands exactly at `position` of `line`: a new one, for the caller to label,
        or the one that only the disk has.
        """
        held, device = tuple(pages), self._pages.device
        with device.taken(self._images.cells) as image:
            device.write(image, self._images.pack(lane))
        self._pages.hold_on_device(held)
        return self._keep(tenant, line, position, held, image, Tier.DEVICE)

    def save_on_host(
        self, lane: int, tenant: TenantKey, line: memoryview, position: int, pages: Iterable[Page]
    ) -> Checkpoint:
        """The same on the host."""
        held, host = tuple(pages), self._pages.host
        with host.taken(self._images.cells) as image:
            host.write(image, self._images.pack(lane))
            self._pages.hold_on_host(held, self._tail_tokens(position))
        return self._keep(tenant, line, position, held, image, Tier.HOST)

    def standing(self, tenant: TenantKey, line: memoryview, position: int) -> Checkpoint | None:
        """The checkpoint at exactly these tokens."""
        walk = self.walk(tenant, line[: position * TOKEN_BYTES])
        return next((each for each in walk.entries if each.position == position), None)

    def host_cells_missing(self, pages: Iterable[Page]) -> int:
        """What a checkpoint of these pages would take on the host."""
        return self._pages.host_cells_missing(pages) + self._images.cells

    def demote(self, checkpoint: Checkpoint) -> None:
        """Device → host, pages and image together; the host has the room."""
        assert checkpoint.tier is Tier.DEVICE
        with self._pages.host.taken(len(checkpoint.image)) as image:
            self._pages.host.copy(image, self._pages.device, checkpoint.image)
            self._pages.hold_on_host(checkpoint.pages, self._tail_tokens(checkpoint.position))
        self._pages.device.release(checkpoint.image)
        self._pages.release_on_device(checkpoint.pages)
        checkpoint.image = image
        self._move(checkpoint, Tier.HOST)

    def fits_on_device(self, checkpoint: Checkpoint) -> bool:
        """Whether the device has the room free that `promote` takes."""
        absent = sum(page.device_cell is None for page in checkpoint.pages)
        return absent + self._images.cells <= self._pages.device.free

    def promote(self, checkpoint: Checkpoint) -> None:
        """Host → device, pages and image together; the device has the room. A tail that isn't there comes as a page of its own: its host
        copy may be shorter than what others, later, take the page to hold.
        """
        assert checkpoint.tier is Tier.HOST
        host, device, pages = self._pages.host, self._pages.device, checkpoint.pages
        full = self.full_pages(checkpoint)
        tail = pages[len(full) :]
        fresh = [page for page in tail if page.device_cell is None]
        with device.taken(self._images.cells + len(fresh)) as cells:
            tails = [page.host_cell for page in fresh if page.host_cell is not None]
            device.copy(cells, host, [*checkpoint.image, *tails])
            self._pages.bring_to_device(full)
        if fresh:
            tail = tuple(Page(cell) for cell in cells[self._images.cells :])
        self._pages.hold_on_device((*full, *tail))
        host.release(checkpoint.image)
        self._pages.release_on_host(pages)
        checkpoint.image, checkpoint.pages = cells[: self._images.cells], (*full, *tail)
        self._move(checkpoint, Tier.DEVICE)

    def settle_on_disk(self, checkpoint: Checkpoint) -> None:
        """Leaves memory; the complete copy is all there is from now on."""
        assert checkpoint.on_disk
        self._leave_memory(checkpoint)
        checkpoint.pages, checkpoint.image = (), ()
        self._move(checkpoint, Tier.DISK)

    def come_to_memory(
        self, checkpoint: Checkpoint, pages: tuple[Page, ...], image: tuple[int, ...], tier: Tier
    ) -> None:
        """What was on disk only is in memory too: pages held there for it already, and an image in cells that are its own now."""
        assert checkpoint.tier is Tier.DISK
        checkpoint.pages, checkpoint.image = pages, image
        self._move(checkpoint, tier)
        self._index.offer(checkpoint, self.full_pages(checkpoint))

    def find_again(
        self, tenant: TenantKey, line: bytes, labels: Iterable[Label], copy: Copy
    ) -> Checkpoint:
        """A checkpoint that an earlier process wrote, with the labels it had; one of these tokens that is known takes the copy."""
        position = len(line) // TOKEN_BYTES
        known = self.standing(tenant, memoryview(line), position)
        found = known or self._enter(tenant, memoryview(line), position, (), (), Tier.DISK)
        assert found.copy is None
        for label in labels:
            if label.continuation not in found.labels:
                self._register(found, label)
                self.serial = max(self.serial, label.serial)
        found.copy = copy
        if known is not None:
            self.relabelled[known.key] = None
        return found

    def give_up_copy(self, checkpoint: Checkpoint) -> None:
        """Its files go; in memory it stays."""
        assert checkpoint.tier is not Tier.DISK
        if checkpoint.copy is not None:
            self._give_up(checkpoint.copy)
            checkpoint.copy = None

    def full_pages(self, checkpoint: Checkpoint) -> tuple[Page, ...]:
        """All but a partly filled tail."""
        return checkpoint.pages[: checkpoint.position // self._pages.page_tokens]

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
        self.serial += 1
        known = checkpoint.labels.get(continuation)
        name = known.checkpoint if known else CheckpointId(f"{self._prefix}{self.serial}")
        label = Label(name, continuation, kind, self.serial)
        self._register(checkpoint, label)
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
        return CheckpointInfo(
            checkpoint=label.checkpoint,
            continuation=label.continuation,
            kind=label.kind,
            position=checkpoint.position,
            tier=checkpoint.tier,
            bytes=self._bytes_alone(checkpoint) if len(checkpoint.labels) == 1 else 0,
        )

    def bytes_of(self, checkpoints: Iterable[Checkpoint]) -> int:
        """All that these hold together where they are, each page once in each tier."""
        own = 0
        seen: set[tuple[Tier, int]] = set()
        for checkpoint in checkpoints:
            own += self._own_bytes(checkpoint)
            seen.update((checkpoint.tier, id(page)) for page in self._held(checkpoint))
        return own + sum(self._page_bytes(tier) for tier, _ in seen)

    def _bytes_alone(self, checkpoint: Checkpoint) -> int:
        """Its image and the pages that nothing else holds in its tier."""
        pages = sum(
            (page.holders if isinstance(page, StoredPage) else page.device + page.host) == 1
            for page in self._held(checkpoint)
        )
        return self._own_bytes(checkpoint) + pages * self._page_bytes(checkpoint.tier)

    def _own_bytes(self, checkpoint: Checkpoint) -> int:
        if checkpoint.tier is Tier.DISK:
            assert checkpoint.copy is not None
            return checkpoint.copy.own_bytes
        return len(checkpoint.image) * self._pages.device.cell_bytes

    def _held(self, checkpoint: Checkpoint) -> Iterable[Page | StoredPage]:
        if checkpoint.tier is Tier.DISK:
            assert checkpoint.copy is not None
            return checkpoint.copy.pages
        return checkpoint.pages

    def _page_bytes(self, tier: Tier) -> int:
        if tier is Tier.DISK:
            assert self._disk is not None
            return self._disk.shape.page_file_bytes
        return self._pages.device.cell_bytes

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
        known = self.standing(tenant, line, position)
        if known is None:
            return self._enter(tenant, line, position, pages, image, tier)
        self.come_to_memory(known, pages, image, tier)
        return known

    def _enter(
        self,
        tenant: TenantKey,
        line: memoryview,
        position: int,
        pages: tuple[Page, ...],
        image: tuple[int, ...],
        tier: Tier,
    ) -> Checkpoint:
        self.serial += 1
        checkpoint = Checkpoint(self.serial, tenant, position, pages, image, tier, {})
        self.all[checkpoint.key] = checkpoint
        self._index.add(checkpoint, line, self.full_pages(checkpoint))
        return checkpoint

    def _move(self, checkpoint: Checkpoint, tier: Tier) -> None:
        checkpoint.tier = tier
        self._ranking.move(checkpoint.key, tier)

    def _register(self, checkpoint: Checkpoint, label: Label) -> None:
        checkpoint.labels[label.continuation] = label
        self.of.setdefault(label.continuation, {})[label.checkpoint] = checkpoint
        self._ranking.label(checkpoint.key, checkpoint.tier, label)
        self._note_relabelled(checkpoint)

    def _unregister(self, checkpoint: Checkpoint, label: Label) -> None:
        self._note_relabelled(checkpoint)
        del checkpoint.labels[label.continuation]
        self._ranking.unlabel(checkpoint.key, label.continuation)
        known = self.of[label.continuation]
        del known[label.checkpoint]
        if not known:
            del self.of[label.continuation]

    def _note_relabelled(self, checkpoint: Checkpoint) -> None:
        if checkpoint.copy is not None:
            self.relabelled[checkpoint.key] = None

    def _forget(self, checkpoint: Checkpoint) -> None:
        del self.all[checkpoint.key]
        self.relabelled.pop(checkpoint.key, None)
        self._index.remove(checkpoint)
        if checkpoint.copy is not None:
            self._give_up(checkpoint.copy)
        self._leave_memory(checkpoint)

    def _give_up(self, copy: Copy) -> None:
        assert self._disk is not None
        if not copy.given_up:
            self._disk.give_up(copy)

    def _leave_memory(self, checkpoint: Checkpoint) -> None:
        if checkpoint.tier is Tier.DEVICE:
            self._pages.device.release(checkpoint.image)
            self._pages.release_on_device(checkpoint.pages)
        elif checkpoint.tier is Tier.HOST:
            self._pages.host.release(checkpoint.image)
            self._pages.release_on_host(checkpoint.pages)

    def _arena(self, tier: Tier) -> Arena:
        assert tier is not Tier.DISK
        return self._pages.device if tier is Tier.DEVICE else self._pages.host

    def _tail_tokens(self, position: int) -> int:
        return position - (position - 1) // self._pages.page_tokens * self._pages.page_tokens
