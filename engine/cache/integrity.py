"""Proof that every cell, page, lane, image, label and file is accounted for exactly once. Reads everything, mutates nothing."""

from collections import Counter
from collections.abc import Iterable

from engine.api import Tier
from engine.cache.checkpoints import Checkpoint
from engine.cache.disk_files import NAME, UNFINISHED, Kind
from engine.cache.disk_tier import DiskTier
from engine.cache.pages import Page
from engine.cache.restore import Incoming
from engine.cache.store import Cache
from engine.planner.residency import Worth


def check(cache: Cache, running_lanes: Iterable[int]) -> None:
    """Raises AssertionError naming the first account that is wrong. `running_lanes` are those with a sequence."""
    check_memory(cache, running_lanes)
    if cache.disk is not None:
        _check_copies(cache, cache.disk.tier)
        _check_files(cache.disk.tier)


def check_memory(cache: Cache, running_lanes: Iterable[int]) -> None:
    """The part of `check` that looks at no file."""
    _check_lanes(cache, list(running_lanes))
    pages = _check_holders(cache)
    _check_cells(cache, pages)
    _check_names(cache)
    _check_ranking(cache)


def _check_lanes(cache: Cache, running: list[int]) -> None:
    lanes = cache.lanes
    assert sorted([*running, *lanes.free_lanes()]) == list(range(lanes.count)), "lanes"
    for lane, pages in enumerate(lanes.pages):
        assert lane in running or not pages, f"free lane {lane} holds pages"
        cells = [page.device_cell for page in pages]
        assert lanes.tables[lane, : len(pages)].tolist() == cells, f"page table of lane {lane}"
        assert len(set(cells)) == len(cells), f"lane {lane} holds a page twice"


def _in_memory(cache: Cache) -> list[Checkpoint | Incoming]:
    """All that holds pages and image cells: checkpoints, and the one on its way from disk."""
    incoming = None if cache.disk is None else cache.disk.restores.incoming
    return [*cache.checkpoints.all.values(), *([] if incoming is None else [incoming])]


def _check_holders(cache: Cache) -> set[Page]:
    on_device = [each for each in _in_memory(cache) if each.tier is Tier.DEVICE]
    on_host = [each for each in _in_memory(cache) if each.tier is Tier.HOST]
    lanes = Counter(page for pages in cache.lanes.pages for page in pages)
    device = Counter(page for each in on_device for page in each.pages)
    host = Counter(page for each in on_host for page in each.pages)
    pages = {*lanes, *device, *host}
    for page in pages:
        held = (page.lanes, page.device, page.host)
        assert held == (lanes[page], device[page], host[page]), "holders of a page"
        assert (page.device_cell is not None) == (page.lanes + page.device > 0), "device cell"
        assert (page.host_cell is not None) == (page.host > 0), "host cell"
    assert cache.pages.in_lanes == len(lanes), "count of pages in lanes"
    size = cache.plan.geometry.page_tokens
    for each in (each for each in on_host if isinstance(each, Checkpoint)):
        for number, page in enumerate(each.pages):
            assert page.host_tokens >= min(size, each.position - number * size), (
                "host copy too short"
            )
    return pages


def _check_cells(cache: Cache, pages: set[Page]) -> None:
    for arena in (cache.pages.device, cache.pages.host):
        images = [each.image for each in _in_memory(cache) if each.tier is arena.tier]
        used = [cell for image in images for cell in image]
        if arena.tier is Tier.DEVICE:
            used += [page.device_cell for page in pages if page.device_cell is not None]
        else:
            used += [page.host_cell for page in pages if page.host_cell is not None]
        every = sorted([*used, *arena.free_cells()])
        assert every == list(range(arena.cells)), f"cells of tier {arena.tier}"


def _check_names(cache: Cache) -> None:
    store = cache.checkpoints
    indexed = cache.index.entries()
    assert sorted(each.key for each in indexed) == sorted(store.all), "prefix index"
    for key, each in store.all.items():
        assert each.key == key, "key of a checkpoint"
        assert each.labels, "a checkpoint without a label"
        size = cache.plan.geometry.page_tokens
        there = each.tier is not Tier.DISK
        assert len(each.pages) == there * -(-each.position // size), "pages of a checkpoint"
        assert len(each.image) == there * store.image_cells, "image of a checkpoint"
        assert there or each.on_disk, "a checkpoint that is nowhere"
        for continuation, label in each.labels.items():
            assert store.of.get(continuation, {}).get(label.checkpoint) is each, "label"
    labels = sum(len(each.labels) for each in store.all.values())
    assert labels == sum(map(len, store.of.values())), "labels of continuations"


def _check_ranking(cache: Cache) -> None:
    """The kept orders are what sorting everything anew gives."""
    ranking = cache.reclaim.ranking
    worth = Worth(ranking, ranking.now)
    for tier in Tier:
        there = [each for each in cache.checkpoints.all.values() if each.tier is tier]
        order = sorted((worth.checkpoint(each.labels.values()), each.key) for each in there)
        assert ranking.order(tier) == order, f"order of tier {tier}"


def _check_copies(cache: Cache, tier: DiskTier) -> None:
    """Each copy is one checkpoint's, and the accounts say what the copies hold."""
    owners = [each for each in cache.checkpoints.all.values() if each.copy is not None]
    assert {id(each.copy) for each in owners} == set(map(id, tier.copies.values())), "copies"
    assert len(owners) == len(tier.copies), "a copy of two checkpoints"
    holders: Counter[str] = Counter()
    for each in owners:
        copy = each.copy
        assert copy is not None
        assert len(copy.pages) == each.position // cache.pages.page_tokens, "pages of a copy"
        assert [page.name for page in copy.pages] == list(copy.names.pages), "pages of a copy"
        assert all(tier.pages[page.name] is page for page in copy.pages), "pages of a copy"
        assert not copy.complete or all(page.written for page in copy.pages), "an unwritten page"
        holders.update(copy.names.pages)
    assert {name: page.holders for name, page in tier.pages.items()} == holders, "holders on disk"
    own = sum(copy.own_bytes for copy in tier.copies.values())
    pages = len(tier.pages) * tier.shape.page_file_bytes
    assert tier.used_bytes == own + pages, "bytes on disk"


def _check_files(tier: DiskTier) -> None:
    """Files that no job is under way for are exactly those accounted for."""
    if not tier.opened:
        return
    try:
        listed = {kind: tier.files.names(kind) for kind in Kind}
    except FileNotFoundError:  # the directory has vanished, which the tier may not have noticed yet
        return
    if not tier.files.present:
        return
    states = {name for name, copy in tier.copies.items() if copy.complete}
    pages = {name for name, page in tier.pages.items() if page.written}
    for kind, names in ((Kind.PAGE, pages), (Kind.STATE, states), (Kind.LABELS, states)):
        moving = {name for each, name in tier.moving if each is kind}
        moving |= {file.name for file in tier.left if file.kind is kind}
        found = {name for name in listed[kind] if not name.endswith(UNFINISHED)}
        assert all(NAME.fullmatch(name) for name in found), "a foreign file"
        assert found - moving == names - moving, f"files in {kind}"
