"""What the HTTP side needs of the rest: the seam to turns and stored responses. No behaviour here."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Protocol

from ninfer_proxy.events import TurnEvent
from ninfer_proxy.types import ModelInfo, TenantKey, Turn


class RunningTurn(Protocol):
    """A turn that was accepted. `opening_body` is the response object with status in_progress."""

    @property
    def response_id(self) -> str: ...

    @property
    def created_at(self) -> int: ...

    @property
    def decision_header(self) -> str:
        """Value of `x-ninfer-decision`, as far as it is known by now."""
        ...

    @property
    def opening_body(self) -> Mapping[str, Any]: ...

    def events(self) -> AsyncIterator[TurnEvent]:
        """The turn's events. Asked for once; nobody asks for more behind Completed or Broken."""
        ...

    async def close(self) -> None:
        """Cancel the generation unless the turn has ended. Always called when the answer is over; also where `events` never was."""
        ...


class ItemPage(Protocol):
    """One page of input items."""

    @property
    def data(self) -> Sequence[Mapping[str, Any]]:
        """Items in wire form, each with an `id`, in the order asked for."""
        ...

    @property
    def has_more(self) -> bool: ...


class TurnService(Protocol):
    async def begin(self, turn: Turn) -> RunningTurn:
        """Accept a turn. Cancelling this call leaves nothing running. Errors: ProxyError."""
        ...

    async def count_tokens(self, turn: Turn) -> int:
        """Prompt tokens of the turn; runs nothing and changes nothing. Errors: ProxyError."""
        ...

    async def get_response(
        self, tenant: TenantKey, response_id: str
    ) -> Mapping[str, Any] | None: ...

    async def delete_response(self, tenant: TenantKey, response_id: str) -> bool:
        """False when there is no such response."""
        ...

    async def input_items(
        self, tenant: TenantKey, response_id: str, after: str | None, limit: int, order: str
    ) -> ItemPage | None:
        """Input of a stored response; `order` is asc or desc, `after` an item id. None when there is no such response.
        Errors: InvalidRequest for an `after` that isn't in it.
        """
        ...

    async def health(self) -> Mapping[str, Any]:
        """What `/health` says; `status` is "ok" exactly when requests can be served."""
        ...

    def model(self) -> ModelInfo: ...
