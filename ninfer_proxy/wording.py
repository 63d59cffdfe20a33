"""Numbers in sentences for people: nouns and verbs that agree with them. Pure; knows English, not what is counted."""


def counted(number: int, noun: str) -> str:
    """`1 token`, `12,000 tokens`; for nouns whose plural takes an s."""
    return f"{number:,} {noun if number == 1 else noun + 's'}"


def agreeing(number: int, one: str, many: str) -> str:
    """The word that goes with a number: `one` with 1, else `many`."""
    return one if number == 1 else many
