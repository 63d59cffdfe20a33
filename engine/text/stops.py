"""Finds stop strings in text as it arrives. Knows nothing of tokens and channels."""

from collections.abc import Sequence


class StopMatcher:
    """Lets text through up to the stop string that is complete first; what may be the start of one is held back."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.hit = False

    def feed(self, text: str) -> str:
        """The text that is certain; nothing any more once `hit`."""
        if self.hit:
            return ""
        if not self._stops:
            return text
        text = self._held + text
        ends = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if ends:
            self.hit, self._held = True, ""
            return text[: min(ends)[1]]
        keep = self._possible_start(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """The text held back, when nothing follows that could complete a stop string."""
        held, self._held = self._held, ""
        return held

    def _possible_start(self, text: str) -> int:
        longest = max(map(len, self._stops), default=1) - 1
        for length in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stops):
                return length
        return 0
