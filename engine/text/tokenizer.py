"""Tokens of plain text and back. Control tokens are found by `split` only; `encode` never yields one. Knows no messages."""

import json
import re
import threading
from collections import OrderedDict
from typing import Any

import tokenizers

from engine.text.errors import PromptError, TextFilesError

CACHED_CHARS = 16_000_000


class Tokenizer:
    """A byte-level BPE tokenizer, read from the text of a `tokenizer.json`.

    `control_ids` maps each control token's text to its id; `hidden_ids` are those that are never part of an answer's text
    (flagged special in the file; the tags of reasoning and tool calls are not). `vocab_limit` is one above the highest id.

    `encode` remembers what it encoded (up to `CACHED_CHARS` characters, least recently used first out), so a long head
    is tokenised once, not once a turn. Any number of threads may encode at once, and others go on meanwhile.
    """

    def __init__(self, document: str) -> None:
        """Raises TextFilesError when the file is damaged or no byte-level BPE."""
        try:
            parsed = json.loads(document)
            added = {token["content"]: token for token in parsed["added_tokens"]}
            if not _is_byte_level(parsed["decoder"]):
                raise TextFilesError("tokenizer.json: only byte-level tokenizers are supported")
            self._plain = tokenizers.Tokenizer.from_str(json.dumps(_without_control(parsed, added)))
        except TextFilesError:
            raise
        except Exception as error:  # the tokenizers library raises bare Exception
            raise TextFilesError(f"tokenizer.json can't be read: {error}") from error
        self.control_ids: dict[str, int] = {text: token["id"] for text, token in added.items()}
        self.hidden_ids = frozenset(token["id"] for token in added.values() if token["special"])
        self.vocab_limit = 1 + max([*self._plain.get_vocab().values(), *self.control_ids.values()])
        longest_first = sorted(self.control_ids, key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._control_texts = {number: text for text, number in self.control_ids.items()}
        self._encoded: OrderedDict[str, tuple[int, ...]] = OrderedDict()
        self._encoded_chars = 0
        self._lock = threading.Lock()

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of plain text; what looks like a control token in it stays text.

        Raises PromptError for text that has no UTF-8 form.
        """
        with self._lock:
            if text in self._encoded:
                self._encoded.move_to_end(text)
                return self._encoded[text]
        ids = self._encode_anew(text)
        with self._lock:
            self._remember(text, ids)
        return ids

    def _encode_anew(self, text: str) -> tuple[int, ...]:
        try:
            # A batch of one, since the library holds the interpreter's lock over a single text: nothing else would run.
            (encoding,) = self._plain.encode_batch_fast([text], add_special_tokens=False)
        except TypeError as error:  # the library's word for a str it can't convert
            raise PromptError("a text holds half a surrogate pair") from error
        return tuple(encoding.ids)

    def _remember(self, text: str, ids: tuple[int, ...]) -> None:
        if text in self._encoded:
            return
        self._encoded[text] = ids
        self._encoded_chars += len(text)
        while self._encoded_chars > CACHED_CHARS:
            oldest, _ = self._encoded.popitem(last=False)
            self._encoded_chars -= len(oldest)

    def split(self, text: str) -> list[int | str]:
        """`text` cut at its control tokens: ids for those, strings (never empty) for what lies between."""
        parts: list[int | str] = []
        position = 0
        for match in self._control.finditer(text):
            if match.start() > position:
                parts.append(text[position : match.start()])
            parts.append(self.control_ids[match.group()])
            position = match.end()
        if position < len(text):
            parts.append(text[position:])
        return parts

    def encode_parts(self, parts: list[int | str]) -> list[int]:
        """Token ids of what `split` gave."""
        ids: list[int] = []
        for part in parts:
            if isinstance(part, int):
                ids.append(part)
            else:
                ids.extend(self.encode(part))
        return ids

    def has_control(self, text: str) -> bool:
        return self._control.search(text) is not None

    def break_control(self, text: str, marker: str) -> str:
        """`text` with `marker` put inside each control token it spells, so that `split` finds none."""
        return self._control.sub(lambda match: match.group()[0] + marker + match.group()[1:], text)

    def stable_prefix(self, text: str) -> int:
        """How many leading tokens of `text` stay the same whatever is appended to it.

        A border between pre-tokens depends on what lies before it, on the character behind it and on a run of blanks
        from there, so it is settled once a character that is no blank follows it.

            > \\n\\n # # Tools ─┐ appended text may join the last pre-token, never an earlier one
                        └──────┘ dropped
        """
        (encoding,) = self._plain.encode_batch([text], add_special_tokens=False)
        for index in range(len(encoding) - 1, 0, -1):
            start = encoding.offsets[index][0]
            if encoding.word_ids[index] != encoding.word_ids[index - 1] and text[start:].strip():
                return index
        return 0

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for; empty for ids that name no token."""
        control = self._control_texts.get(token_id)
        if control is not None:
            return control.encode()
        piece = self._plain.id_to_token(token_id)
        return b"" if piece is None else bytes(_BYTE_OF[character] for character in piece)

    def byte_tokens(self, data: bytes) -> list[int]:
        """One token for each byte, which byte-level BPE always has."""
        tokens = [self._plain.token_to_id(_CHARACTER_OF[byte]) for byte in data]
        found = [token for token in tokens if token is not None]
        assert len(found) == len(data)
        return found

    def decode(self, token_ids: list[int] | tuple[int, ...]) -> str:
        """Text of tokens, control tokens included; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(map(self.token_bytes, token_ids)).decode("utf-8", errors="replace")


def _is_byte_level(decoder: Any) -> bool:
    if not isinstance(decoder, dict):
        return False
    inner = decoder.get("decoders", [decoder])
    return [item.get("type") for item in inner] == ["ByteLevel"]


def _without_control(parsed: dict[str, Any], added: dict[str, Any]) -> dict[str, Any]:
    """The same tokenizer with no control tokens: the library would otherwise find them in any text."""
    model = dict(parsed["model"])
    model["vocab"] = {
        piece: number for piece, number in model["vocab"].items() if piece not in added
    }
    off: dict[str, Any] = {
        "truncation": None,
        "padding": None,
        "post_processor": None,
        "added_tokens": [],
    }
    return {**parsed, **off, "model": model}


def _byte_alphabet() -> dict[str, int]:
    """Byte-level BPE writes printable Latin-1 bytes as themselves and the others, in order, from U+0100 up."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    shifted = {chr(0x100 + index): byte for index, byte in enumerate(others)}
    return {chr(byte): byte for byte in printable} | shifted


_BYTE_OF = _byte_alphabet()
_CHARACTER_OF = {byte: character for character, byte in _BYTE_OF.items()}
