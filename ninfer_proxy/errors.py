"""Every error a client can be told of. Knows the HTTP status and OpenAI's code of each; doesn't know how they are sent.

ProxyError                       500 server_error
├── InvalidRequest               400 invalid_request_error
│   ├── MalformedJson            400 invalid_json
│   ├── ContextLengthExceeded    400 context_length_exceeded
│   ├── PreviousResponseNotFound 400 previous_response_not_found
│   ├── OrphanOutput             400 no_matching_call
│   └── BodyTooLarge             413 body_too_large
├── NotAuthorised                401 invalid_api_key
├── NotFound                     404 not_found
├── ModelNotFound                404 model_not_found
├── Overloaded                   429 queue_full, with retry_after_s
│   └── MemoryPinned             429 memory_pinned
├── EngineUnavailable            503 engine_unavailable, with retry_after_s
├── StoreUnavailable             503 store_unavailable, with retry_after_s
│   ├── StoreBusy                503 store_busy
│   ├── StoreFull                503 store_full
│   └── StoreDamaged             503 store_damaged
└── EngineFault                  500 engine_fault

StartRefused and CommandRefused stand apart: no client is there, so they are said on the terminal.
"""


class ProxyError(Exception):
    """`message` is for a person; `code` and `param` are what programs read; `retry_after_s` becomes Retry-After."""

    status = 500
    type = "server_error"
    code = "server_error"

    def __init__(
        self, message: str, *, param: str | None = None, retry_after_s: int | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s


class InvalidRequest(ProxyError):
    status = 400
    type = "invalid_request_error"
    code = "invalid_request"


class MalformedJson(InvalidRequest):
    code = "invalid_json"


class ContextLengthExceeded(InvalidRequest):
    code = "context_length_exceeded"


class PreviousResponseNotFound(InvalidRequest):
    """Its body is what agents look for before they fall back to sending the whole history."""

    code = "previous_response_not_found"

    def __init__(self) -> None:
        super().__init__("Previous response with id not found.", param="previous_response_id")


class OrphanOutput(InvalidRequest):
    code = "no_matching_call"


class BodyTooLarge(InvalidRequest):
    status = 413
    code = "body_too_large"


class NotAuthorised(ProxyError):
    status = 401
    type = "invalid_request_error"
    code = "invalid_api_key"


class NotFound(ProxyError):
    status = 404
    type = "invalid_request_error"
    code = "not_found"


class ModelNotFound(ProxyError):
    status = 404
    type = "invalid_request_error"
    code = "model_not_found"


class Overloaded(ProxyError):
    status = 429
    type = "too_many_requests"
    code = "queue_full"


class MemoryPinned(Overloaded):
    """Nothing but pinned state stands in the way; a pin that ends or is taken back makes room."""

    code = "memory_pinned"


class EngineUnavailable(ProxyError):
    status = 503
    code = "engine_unavailable"


class StoreUnavailable(ProxyError):
    """The database refused an operation; nothing of it was written."""

    status = 503
    code = "store_unavailable"


class StoreBusy(StoreUnavailable):
    """Another process held the write lock for longer than we wait."""

    code = "store_busy"


class StoreFull(StoreUnavailable):
    code = "store_full"


class StoreDamaged(StoreUnavailable):
    """The database file can't be used as it is; a restart sets it aside."""

    code = "store_damaged"


class EngineFault(ProxyError):
    code = "engine_fault"


class StartRefused(Exception):
    """The service can't start as asked; the message says what to do about it."""


class CommandRefused(Exception):
    """A command can't do what it was asked; the message says why and what would do."""
