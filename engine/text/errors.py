"""What can be refused between text and tokens. Knows nothing of requests."""

from engine.errors import EngineError


class PromptError(EngineError):
    """The prompt can't be rendered: the template refuses it, or a message is malformed. The message is fit for the client."""


class TextFilesError(EngineError):
    """A model directory's tokenizer, template or generation settings are missing or of a kind this engine can't use."""
