"""The cache part by part: who may write a page, what an image carries, what the index proves."""

from array import array

import pytest
import torch

from engine.api import Anchor, AnchorKind, ContinuationId, Retention, TenantKey, Tier
from engine.cache.arena import Arena, device_arena, host_arena
from engine.cache.images import Images
from engine.cache.integrity import check
from engine.cache.pages import Pages
from engine.cache.prefix_index import PrefixIndex, shared_bytes
from engine.cache.store import Cache, Line
from engine.models.batch import CachePools
from engine.sequence import wanted_positions
from tests.engine.fake_model import PAGE_TOKENS, fake_pools
from tests.engine.rig import memory_plan

T = TenantKey("t")
A, B = ContinuationId("a"), ContinuationId("b")


def line(tokens: list[int], tenant: TenantKey = T) -> Line:
    return Line(tenant, memoryview(array("I", tokens).tobytes()))


def make_cache(cells: int = 60, host_cells: int = 60, lanes: int = 2) -> tuple[Cache, CachePools]:
    pools = fake_pools(cells, lanes)
    cache = Cache(memory_plan(pools, host_cells, 200), pools, "c")
    for name in (A, B):
        cache.reclaim.retentions[name] = Retention(name, 1, 1.0)
    return cache, pools


def write(cache: Cache, pools: CachePools, lane: int, start: int, tokens: list[int]) -> None:
    """Plays the model: `tokens` from position `start`, and a state that names the end."""
    assert cache.reserve(lane, start + len(tokens), 0.0)
    for at, token in enumerate(tokens, start):
        pools.kv[int(cache.lanes.tables[lane, at // PAGE_TOKENS]), 0, :, at % PAGE_TOKENS] = token
    pools.recurrent[lane] = start + len(tokens)
    pools.conv[lane] = -float(start + len(tokens))


def read(cache: Cache, pools: CachePools, lane: int, count: int) -> list[int]:
    pages = cache.lanes.table(lane)
    return [int(value) for value in pools.kv[pages, 0, 0, :, 0, 0].reshape(-1)[:count].tolist()]


class TestPages:
    def test_a_writer_goes_on_beside_its_checkpoints(self) -> None:
        cache, pools = make_cache()
        lane = cache.open(None, 0.0)
        assert lane is not None
        write(cache, pools, lane, 0, [1, 2, 3])
        cache.save(lane, line([1, 2, 3]), 3, A, AnchorKind.HEAD, 0.0)
        write(cache, pools, lane, 3, [4, 5])
        cache.save(lane, line([1, 2, 3, 4, 5]), 5, A, AnchorKind.TIP, 0.0)
        assert cache.pages.device.used == 1 + 2 * cache.checkpoints.image_cells
        check(cache, [lane])

    def test_resuming_in_mid_page_copies_the_tail_and_shares_the_rest(self) -> None:
        cache, pools = make_cache()
        first = cache.open(None, 0.0)
        assert first is not None
        tokens = list(range(10, 21))
        write(cache, pools, first, 0, tokens)
        cache.save(first, line(tokens), 11, A, AnchorKind.TIP, 0.0)
        (source,) = cache.look_up(line(tokens)).candidates
        second = cache.open(source, 0.0)
        assert second is not None
        assert cache.lanes.pages[first][0] is cache.lanes.pages[second][0]
        assert cache.lanes.pages[first][1] is not cache.lanes.pages[second][1]
        write(cache, pools, first, 11, [91, 92])
        write(cache, pools, second, 11, [81, 82])
        assert read(cache, pools, first, 13) == [*tokens, 91, 92]
        assert read(cache, pools, second, 13) == [*tokens, 81, 82]
        check(cache, [first, second])

    def test_host_copy_of_a_page_grows_with_the_later_checkpoint(self) -> None:
        """The page of both checkpoints is on the host once, first with 3 tokens, then with 6."""
        cache, pools = make_cache()
        lane = cache.open(None, 0.0)
        assert lane is not None
        tokens = [1, 2, 3, 4, 5, 6]
        write(cache, pools, lane, 0, tokens[:3])
        cache.save(lane, line(tokens[:3]), 3, A, AnchorKind.HEAD, 0.0)
        early = cache.standing(line(tokens), 3)
        assert early is not None
        cache.checkpoints.demote(early)
        write(cache, pools, lane, 3, tokens[3:])
        cache.save(lane, line(tokens), 6, A, AnchorKind.TIP, 0.0)
        late = cache.standing(line(tokens), 6)
        assert late is not None
        cache.checkpoints.demote(late)
        cache.close(lane)
        check(cache, [])
        assert cache.pages.device.used == 0
        assert cache.pages.host.used == 1 + 2 * cache.checkpoints.image_cells
        for count in (3, 6):
            found = cache.look_up(line(tokens[:count])).candidates[0]
            lane = cache.open(found, 0.0)
            assert lane is not None
            assert read(cache, pools, lane, count) == tokens[:count]
            assert (pools.recurrent[lane] == count).all()
            assert (pools.conv[lane] == -count).all()
            cache.close(lane)

    def test_restoring_moves_only_what_is_missing(self) -> None:
        cache, pools = make_cache()
        lane = cache.open(None, 0.0)
        assert lane is not None
        tokens = list(range(16))
        write(cache, pools, lane, 0, tokens)
        cache.save(lane, line(tokens), 16, A, AnchorKind.TIP, 0.0)
        known = cache.standing(line(tokens), 16)
        assert known is not None
        cache.checkpoints.demote(known)
        brought: list[int] = []
        copy = cache.pages.device.copy
        cache.pages.device.copy = lambda cells, *source: (  # type: ignore[method-assign]
            brought.append(len(cells)),
            copy(cells, *source),
        )[1]
        (source,) = cache.look_up(line([*tokens, 1])).candidates
        second = cache.open(source, 0.0)
        assert second is not None
        assert sum(brought) == 0
        cache.close(lane)
        cache.close(second)
        assert cache.open(source, 0.0) is not None
        assert sum(brought) == 2

    def test_equal_pages_computed_twice_become_one(self) -> None:
        cache, pools = make_cache()
        tokens = list(range(16))
        lanes = []
        for name in (A, B):
            lane = cache.open(None, 0.0)
            assert lane is not None
            write(cache, pools, lane, 0, tokens)
            lanes.append(lane)
            cache.save(lane, line(tokens), 9 if name == A else 16, name, AnchorKind.TIP, 0.0)
        assert cache.lanes.pages[lanes[0]][0] is cache.lanes.pages[lanes[1]][0]
        check(cache, lanes)

    def test_a_page_only_the_host_has_takes_over_computed_bytes(self) -> None:
        cache, pools = make_cache()
        tokens = list(range(8))
        first = cache.open(None, 0.0)
        assert first is not None
        write(cache, pools, first, 0, tokens)
        cache.save(first, line(tokens), 8, A, AnchorKind.TIP, 0.0)
        known = cache.standing(line(tokens), 8)
        assert known is not None
        cache.checkpoints.demote(known)
        cache.close(first)
        second = cache.open(None, 0.0)
        assert second is not None
        write(cache, pools, second, 0, [*tokens, 50])
        cache.save(second, line([*tokens, 50]), 9, B, AnchorKind.TIP, 0.0)
        assert cache.lanes.pages[second][0] is known.pages[0]
        assert read(cache, pools, second, 9) == [*tokens, 50]
        check(cache, [second])


class TestImages:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_every_bit_of_the_state_comes_back(self, dtype: torch.dtype) -> None:
        recurrent = torch.randn(3, 2, 3, 5, 7)
        conv = torch.randn(3, 2, 11, 3).to(dtype)
        images = Images(recurrent, conv, cell_bytes=256)
        before = recurrent[1].clone(), conv[1].clone()
        image = images.pack(1).clone()
        recurrent.zero_()
        conv.zero_()
        images.unpack(2, image)
        assert torch.equal(recurrent[2], before[0])
        assert torch.equal(conv[2], before[1])
        assert not recurrent[1].any()
        assert image.shape == (images.cells, 32)

    def test_device_cells_are_the_kv_pool(self) -> None:
        pools = fake_pools(4, 1)
        arena = device_arena(pools.kv)
        pools.kv[2] = 5.0
        host = host_arena(4, arena.rows.shape[1], pinned=False)
        host.write([1], arena.read([2]))
        arena.write([3], host.read([1]))
        assert (pools.kv[3] == 5.0).all()
        assert arena.cell_bytes == pools.kv[0].nbytes


class Mark:
    """Stands in the index at a position."""

    def __init__(self, tenant: str, position: int) -> None:
        self.tenant = TenantKey(tenant)
        self.position = position


class TestPrefixIndex:
    def place(self, index: PrefixIndex[Mark], tenant: str, tokens: list[int]) -> Mark:
        mark = Mark(tenant, len(tokens))
        pages = Pages(
            Arena(Tier.DEVICE, torch.zeros(9, 1, dtype=torch.int64)),
            host_arena(1, 1, pinned=False),
            4,
        )
        index.add(mark, line(tokens).tokens, [pages.open() for _ in range(-(-len(tokens) // 4))])
        return mark

    @pytest.mark.parametrize(
        ("prompt", "matched", "positions"),
        [
            ([], 0, []),
            ([1, 2, 3], 3, []),
            ([1, 2, 3, 4], 4, [4]),
            ([1, 2, 3, 4, 5], 5, [4]),
            ([1, 2, 3, 4, 5, 6], 6, [6, 4]),
            ([1, 2, 3, 4, 5, 6, 7, 8, 9, 9], 9, [9, 6, 4]),
            ([1, 2, 3, 4, 5, 6, 7, 0, 9, 9], 7, [6, 4]),
            ([1, 2, 3, 4, 9, 6, 7, 8, 9], 4, [4]),
            ([0, 2, 3, 4, 5, 6], 0, []),
        ],
    )
    def test_walk(self, prompt: list[int], matched: int, positions: list[int]) -> None:
        index = PrefixIndex[Mark](4)
        for tokens in ([1, 2, 3, 4], [1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 7, 8, 9]):
            self.place(index, "t", tokens)
        walk = index.walk(T, line(prompt).tokens)
        assert walk.matched == matched
        assert [mark.position for mark in walk.entries] == positions

    def test_tenants_are_apart_and_removal_leaves_nothing(self) -> None:
        index = PrefixIndex[Mark](4)
        marks = [self.place(index, "t", list(range(n))) for n in (3, 8, 9)]
        other = self.place(index, "u", list(range(9)))
        assert [
            m.tenant for m in index.walk(TenantKey("u"), line(list(range(12))).tokens).entries
        ] == ["u"]
        for mark in (marks[1], marks[0], marks[2], other):
            index.remove(mark)
        assert index.entries() == []
        assert index.walk(T, line(list(range(12))).tokens).matched == 0

    def test_shared_bytes_counts_whole_tokens(self) -> None:
        left = array("I", [7, 0x01020304, 9]).tobytes()
        right = array("I", [7, 0x01020305, 9]).tobytes()
        assert shared_bytes(left, right) == 4
        assert shared_bytes(left, left[:8]) == 8
        assert shared_bytes(b"", left) == 0


class TestPositions:
    @pytest.mark.parametrize(
        ("anchor", "positions"),
        [
            (Anchor(AnchorKind.HEAD, 0), [5]),
            (Anchor(AnchorKind.PROMPT_END, 2), [40]),
            (Anchor(AnchorKind.REWIND, 2, 16), [24]),
            (Anchor(AnchorKind.REWIND, 2, 256), []),
            (Anchor(AnchorKind.EXPLICIT, 9), [40]),
            (Anchor(AnchorKind.EXPLICIT, -1), [5]),
            (Anchor(AnchorKind.EXPLICIT, 2, -100), [44]),
        ],
    )
    def test_anchor(self, anchor: Anchor, positions: list[int]) -> None:
        found = wanted_positions([anchor], None, (5, 20, 40), 44)
        assert [position for position, _ in found] == positions

    def test_each_position_once_and_the_ladder_last(self) -> None:
        anchors = [
            Anchor(AnchorKind.HEAD, 1),
            Anchor(AnchorKind.BRANCH, 1),
            Anchor(AnchorKind.TIP, 2),
        ]
        found = wanted_positions(anchors, 20, (5, 20, 40), 44)
        assert found == [(20, AnchorKind.HEAD), (40, AnchorKind.TIP)]
        assert [at for at, _ in wanted_positions([], 15, (5,), 44)] == [15, 30]
