"""Bytes of tokens to text, whole characters only. Knows nothing of what the text means."""

import codecs


class Detokenizer:
    """Holds back the bytes of a character until it is complete. Bytes that can't be UTF-8 become U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, data: bytes) -> str:
        return self._decoder.decode(data)

    def drop_partial(self) -> None:
        """A run of text ends here; part of a character is no text."""
        self._decoder.reset()
