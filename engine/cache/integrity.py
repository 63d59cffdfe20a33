"""Proof that every cell, page, lane, image and label is accounted for exactly once. Reads everything, mutates nothing."""

from collections import Counter
from collections.abc import Iterable

from engine.api import Tier
from engine.cache.pages import Page
from engine.cache.store import Cache


def check(cache: Cache, running_lanes: Iterable[int]) -> None:
    """Raises AssertionError naming the first account that is wrong. `running_lanes` are those with a sequence."""
    _check_lanes(cache, list(running_lanes))
    pages = _check_holders(cache)
    _check_cells(cache, pages)
    _check_names(cache)


def _check_lanes(cache: Cache, running: list[int]) -> None:
    lanes = cache.lanes
    assert sorted([*running, *lanes.free_lanes()]) == list(range(lanes.count)), "lanes"
    for lane, pages in enumerate(lanes.pages):
        assert lane in running or not pages, f"free lane {lane} holds pages"
        cells = [page.device_cell for page in pages]
        assert lanes.tables[lane, : len(pages)].tolist() == cells, f"page table of lane {lane}"
        assert len(set(cells)) == len(cells), f"lane {lane} holds a page twice"


def _check_holders(cache: Cache) -> set[Page]:
    checkpoints = cache.checkpoints.all.values()
    on_device = [each for each in checkpoints if each.tier is Tier.DEVICE]
    on_host = [each for each in checkpoints if each.tier is Tier.HOST]
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
    for each in on_host:
        for number, page in enumerate(each.pages):
            assert page.host_tokens >= min(size, each.position - number * size), (
                "host copy too short"
            )
    return pages


def _check_cells(cache: Cache, pages: set[Page]) -> None:
    for arena in (cache.pages.device, cache.pages.host):
        images = [each.image for each in cache.checkpoints.all.values() if each.tier is arena.tier]
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
        assert len(each.pages) == -(-each.position // size), "pages of a checkpoint"
        assert len(each.image) == store.image_cells, "image of a checkpoint"
        for continuation, label in each.labels.items():
            assert store.of[continuation][label.checkpoint] is each, "label"
    labels = sum(len(each.labels) for each in store.all.values())
    assert labels == sum(map(len, store.of.values())), "labels of continuations"
