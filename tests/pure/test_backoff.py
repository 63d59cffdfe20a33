"""How long a dead engine is left alone, and what counts as a crash loop."""

from ninfer_proxy.backends.backoff import Backoff


def test_it_doubles_up_to_a_limit() -> None:
    backoff = Backoff(first_s=0.5, longest_s=30.0)
    assert [backoff.died(0.0) for _ in range(9)] == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_it_begins_anew_after_a_life_that_served_for_long() -> None:
    backoff = Backoff(first_s=0.5, stable_s=60.0)
    assert [backoff.died(served) for served in (0, 0, 59.9, 60.0, 0)] == [0.5, 1, 2, 0.5, 1]


def test_a_loop_begins_with_the_third_death_in_a_row() -> None:
    backoff, looping = Backoff(loop_after=3), []
    for served_s in (0, 59, 59, 0, 61, 0, 0):
        backoff.died(served_s)
        looping.append(backoff.looping)
    assert looping == [False, False, True, True, False, False, True]


def test_deaths_without_end_stay_at_the_limit() -> None:
    """Half a day of them: 2 to the power of 1100 is no float."""
    backoff = Backoff(longest_s=30.0)
    for _ in range(1100):
        last = backoff.died(0.0)
    assert last == 30.0
