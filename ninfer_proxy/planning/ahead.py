"""What the next request will have left of this one's prompt, as far as its client's habits tell. Knows roles, not what is said."""

from collections.abc import Sequence

from ninfer_proxy.habits import Habits, Place, Tally

LIKELY = 0.5
"""Computing ahead is worth it where an item is taken back at least this often; an anchor costs less and is placed sooner."""


def leaving(roles: Sequence[str], habits: Habits) -> tuple[int, ...]:
    """Which messages of a prompt will be gone when the user goes on; only what was seen to go counts, no guess.

    … answer │ ask note │ call  output …      the note came with the last message of a user, its place counts from there;
                                              what stands right behind an answer is what was asked
    """
    last = max((at for at, role in enumerate(roles) if role == "user"), default=None)
    if last is None:
        return ()
    first, end = last, last + 1
    while first > 0 and roles[first - 1] in ("user", "tool"):
        first -= 1
    while end < len(roles) and roles[end] != "assistant":
        end += 1
    places = ((at, Place(roles[at], end - at)) for at in range(first + 1, end))
    return tuple(at for at, place in places if habits.get(place, Tally()).share >= LIKELY)
