"""Everything textual about one model directory, behind one object. Knows no weights."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.api import Prompt
from engine.text.chat_template import ChatTemplate
from engine.text.errors import TextFilesError
from engine.text.markup import Markup
from engine.text.output import OutputStream
from engine.text.render import Rendered, Renderer
from engine.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TextModel:
    """Tokenizer, chat template and end tokens of one model.

    `tokenizer_id` is a digest of tokenizer and template: ledger entries of another one are not used. `stop_token_ids`
    end a generation. Token ids from `vocab_limit` on name nothing and must not be sampled.
    """

    tokenizer: Tokenizer
    markup: Markup
    renderer: Renderer

    @classmethod
    def load(cls, directory: Path) -> "TextModel":
        """Reads tokenizer.json, chat_template.jinja (or the template in tokenizer_config.json), generation_config.json and
        config.json (end tokens). Raises TextFilesError.
        """
        document = _read(directory / "tokenizer.json")
        if document is None:
            raise TextFilesError(f"{directory} has no tokenizer.json")
        source = _template_source(directory)
        digest = hashlib.sha256(f"{len(document)}\n{document}{source}".encode()).hexdigest()
        tokenizer = Tokenizer(document)
        markup = Markup(tokenizer, digest[:32], _end_tokens(directory))
        return cls(tokenizer, markup, Renderer(tokenizer, ChatTemplate(source), markup))

    @property
    def tokenizer_id(self) -> str:
        return self.markup.tokenizer_id

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        return self.markup.stop_ids

    @property
    def vocab_limit(self) -> int:
        return self.tokenizer.vocab_limit

    def render(self, prompt: Prompt) -> Rendered:
        """Raises PromptError."""
        return self.renderer.render(prompt)

    def count(self, prompt: Prompt) -> int:
        """Tokens of the prompt, generation opener included. Raises PromptError."""
        return len(self.render(prompt).token_ids)

    def opener(self, prompt: Prompt) -> tuple[int, ...]:
        """Rendered.opener without rendering the prompt; only its thinking switches matter. Raises PromptError."""
        return self.renderer.opener(prompt)

    def dictated(self, pieces: Sequence[str | bytes | None]) -> tuple[int | None, ...]:
        """The tokens of a model that says just this: its control tokens are spelled in the text, bytes are one token each, None
        stays. An end token comes last.
        """
        tokens: list[int | None] = []
        for piece in pieces:
            if piece is None:
                tokens.append(None)
            elif isinstance(piece, bytes):
                tokens += self.tokenizer.byte_tokens(piece)
            else:
                tokens += self.tokenizer.encode_parts(self.tokenizer.split(piece))
        return (*tokens, *self.stop_token_ids[:1])

    def open_stream(
        self, prompt: Prompt, stop: Sequence[str] = (), allow_tools: bool = True
    ) -> OutputStream:
        """The output side of one request. Raises PromptError. Without `allow_tools` a call comes out as text."""
        tools = {tool.name: tool.parameters for tool in prompt.tools} if allow_tools else {}
        thinking = self.markup.reasoning_open(self.opener(prompt))
        return OutputStream(self.tokenizer, self.markup, thinking, tools, stop)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise TextFilesError(f"{path}: {error}") from error


def _read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty when there is no file."""
    text = _read(path)
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except ValueError as error:
        raise TextFilesError(f"{path}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise TextFilesError(f"{path}: not a JSON object")
    return value


def _template_source(directory: Path) -> str:
    source = _read(directory / "chat_template.jinja")
    if source is None:
        source = _read_object(directory / "tokenizer_config.json").get("chat_template")
    if not isinstance(source, str):
        raise TextFilesError(f"{directory} has no chat_template.jinja")
    return source


def _end_tokens(directory: Path) -> list[int]:
    """End tokens from the first place that names any: generation_config.json, then config.json. Raises TextFilesError."""
    config = _read_object(directory / "config.json")
    places = (
        _read_object(directory / "generation_config.json"),
        config.get("generation_config"),
        config,
        config.get("text_config"),
    )
    for place in places:
        named = place.get("eos_token_id") if isinstance(place, dict) else None
        if named is None:
            continue
        tokens = named if isinstance(named, list) else [named]
        if not all(type(token) is int and token >= 0 for token in tokens):
            raise TextFilesError(f"{directory}: eos_token_id is {named!r}, wanted token ids")
        return tokens
    return []
