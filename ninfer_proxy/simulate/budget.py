"""What a policy may keep between turns: a number of slots or a number of bytes. Values only."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """Exactly one of the two is set. `slots` conversations rest at a time less those that run; `bytes` hold KV and state of all."""

    slots: int | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        assert (self.slots is None) != (self.bytes is None), "either slots or bytes"
