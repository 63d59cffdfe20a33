"""What clients do with the items that end their requests: keep them, or take them back with the next one. Pure values; knows no client.

request    … A │ u c           the model answers B
the next   … A   u   B │ d e   c, the last of what its request brought (`back` 1), is gone

What happened lately counts more: a client that is set otherwise, or a new version of it, is learned anew within a few turns.
"""

from collections.abc import Mapping
from dataclasses import dataclass

FADING = 0.75
"""What a sight counts after one more of the same place."""
MOST_BACK = 4
"""Places farther from the end aren't counted."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message stood when it was sent: the `back`-th from the end of its prompt, 1 being the last one. `role` as in prompts."""

    role: str
    back: int


@dataclass(frozen=True, slots=True)
class Tally:
    """How often what stood at a place was gone or another in the next request, and how often it came again. Fading counts."""

    gone: float = 0.0
    kept: float = 0.0

    @property
    def share(self) -> float:
        """Of what was seen; 0 where nothing was."""
        seen = self.gone + self.kept
        return self.gone / seen if seen else 0.0

    def after(self, gone: bool) -> "Tally":
        return Tally(self.gone * FADING + gone, self.kept * FADING + (not gone))


Habits = Mapping[Place, Tally]
"""What has been learned of one client family of one tenant."""
Seen = Mapping[Place, bool]
"""What one request shows: for each place whether what stood there is gone."""


def learned(habits: Habits, seen: Seen) -> Habits:
    """The habits after what one more request has shown."""
    return {
        **habits,
        **{place: habits.get(place, Tally()).after(gone) for place, gone in seen.items()},
    }
