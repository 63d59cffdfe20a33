"""Which messages of a prompt will be gone when the user goes on."""

from ninfer_proxy.habits import Place, Tally
from ninfer_proxy.planning.ahead import leaving

TAKES_BACK = {Place("user", 1): Tally(gone=1.0)}
ASKED = ("system", "user", "assistant", "user", "user")


def test_the_note_behind_the_question_goes() -> None:
    assert leaving(ASKED, TAKES_BACK) == (4,)
    assert leaving(("system", "user", "user"), TAKES_BACK) == (2,)


def test_in_a_tool_loop_it_stands_where_its_prompt_ended() -> None:
    assert leaving((*ASKED, "assistant", "tool"), TAKES_BACK) == (4,)
    assert leaving((*ASKED[:3], "user", "assistant", "tool", "user"), TAKES_BACK) == (6,)


def test_a_guess_is_not_enough_nor_a_place_that_is_mostly_kept() -> None:
    assert leaving(ASKED, {}) == ()
    assert leaving(ASKED, {Place("user", 1): Tally(gone=1.0, kept=1.1)}) == ()


def test_a_question_alone_is_never_taken_for_a_note() -> None:
    assert leaving(("system", "user"), TAKES_BACK) == ()
    assert leaving(("user", "assistant", "user"), TAKES_BACK) == ()
    assert leaving(("system",), TAKES_BACK) == ()
