"""How long an engine that died is left alone before the next start, and when deaths are a crash loop. Pure: told of each death."""

from dataclasses import dataclass

_DOUBLINGS = 30


@dataclass(slots=True)
class Backoff:
    """Mutable. The wait doubles with each death from `first_s` to `longest_s` seconds, and begins anew after a life that served for
    `stable_s`. `loop_after` deaths in a row without such a life are a crash loop.
    """

    first_s: float = 0.5
    longest_s: float = 30.0
    stable_s: float = 60.0
    loop_after: int = 3
    deaths: int = 0

    def died(self, served_s: float) -> float:
        """Seconds to wait, after a life that served requests for `served_s`."""
        self.deaths = 1 if served_s >= self.stable_s else self.deaths + 1
        return min(self.longest_s, self.first_s * 2.0 ** min(self.deaths - 1, _DOUBLINGS))

    @property
    def looping(self) -> bool:
        return self.deaths >= self.loop_after
