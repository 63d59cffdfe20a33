"""All policies over one workload, and how far each is from the optimum. Knows their names, not how they are shown."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ninfer_proxy.simulate.block_lru import BlockLru
from ninfer_proxy.simulate.budget import Budget
from ninfer_proxy.simulate.cost import Cost
from ninfer_proxy.simulate.lru_slots import LruSlots
from ninfer_proxy.simulate.optimum import Optimum
from ninfer_proxy.simulate.ours import Ours
from ninfer_proxy.simulate.places import Places
from ninfer_proxy.simulate.policy import Policy
from ninfer_proxy.simulate.private_cells import CELLS, PrivateCells
from ninfer_proxy.simulate.replay import Result, replay
from ninfer_proxy.simulate.request import Request

Build = Callable[[Sequence[Request], Budget, Cost], Policy]


POLICIES: Mapping[str, Build] = {
    "ours": lambda requests, budget, cost: Ours(budget, cost),
    "lru_slots": lambda requests, budget, cost: Places(LruSlots(), budget, cost),
    "private_cells": lambda requests, budget, cost: Places(
        PrivateCells(), budget, cost, most=CELLS
    ),
    "block_lru": lambda requests, budget, cost: Places(BlockLru(), budget, cost),
    "optimum": lambda requests, budget, cost: Optimum(requests, budget, cost),
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """`results` are those asked for; `least` is the optimum's, `unlimited` that of a machine which never forgets anything."""

    requests: Sequence[Request]
    budget: Budget
    results: tuple[Result, ...]
    least: Result
    unlimited: Result

    def against_optimum(self, result: Result) -> float:
        """Prefilled tokens as a multiple of the optimum's."""
        return result.prefilled_tokens / self.least.prefilled_tokens

    def time_lost_s(self, result: Result) -> float:
        """Time that requests waited for their prompts longer than on a machine that never forgets."""
        return result.time_s - self.unlimited.time_s

    def view(self) -> dict[str, object]:
        """The comparison as JSON."""
        return {
            "slots": self.budget.slots,
            "bytes": self.budget.bytes,
            "conversations": len({request.conversation for request in self.requests}),
            "requests": len(self.requests),
            "policies": [self._row(result) for result in self.results],
        }

    def _row(self, result: Result) -> dict[str, object]:
        return {
            "policy": result.policy,
            "prompt_tokens": result.prompt_tokens,
            "prefilled_tokens": result.prefilled_tokens,
            "prefilled_share": round(result.prefilled_share, 6),
            "against_optimum": round(self.against_optimum(result), 4),
            "time_lost_s": round(self.time_lost_s(result), 1),
            "evictions": result.evictions,
        }


def compare(
    requests: Sequence[Request], budget: Budget, cost: Cost, names: Sequence[str] = tuple(POLICIES)
) -> Comparison:
    """Replays the workload once for each policy. It may not be empty."""
    found = {
        name: replay(POLICIES[name](requests, budget, cost), requests, cost)
        for name in dict.fromkeys((*names, "optimum"))
    }
    enough = Budget(slots=len(requests))
    return Comparison(
        requests=requests,
        budget=budget,
        results=tuple(found[name] for name in dict.fromkeys(names)),
        least=found["optimum"],
        unlimited=replay(Optimum(requests, enough, cost), requests, cost),
    )
