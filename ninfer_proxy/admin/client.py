"""The admin API from outside: asks a running server. Knows HTTP; prints nothing. Errors say what to do about them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from ninfer_proxy.errors import StartRefused

TIMEOUT_S = 30.0


class AdminError(StartRefused):
    """The server can't be reached or said no; the message is for a person."""


def read_token(path: Path) -> str:
    """The token a server keeps in its data directory. Errors: AdminError."""
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        raise AdminError(
            f"No admin token: {path} does not exist. Start a server, or set NINFER_PROXY_ADMIN_TOKEN "
            "(and NINFER_PROXY_DATA_DIR, if the server keeps its data elsewhere)."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise AdminError(f"The admin token {path} can't be read: {error}.") from error


class AdminClient:
    """Close it, or use it in `with`. Every method returns the API's JSON. Errors: AdminError."""

    def __init__(self, url: str, token: str, transport: httpx.BaseTransport | None = None) -> None:
        self._url = url.rstrip("/")
        self._http = httpx.Client(
            base_url=f"{self._url}/admin/",
            headers={"authorization": f"Bearer {token}"},
            timeout=TIMEOUT_S,
            transport=transport,
            # A proxy for the world outside has no way to a server on this machine.
            trust_env=False,
        )

    def __enter__(self) -> "AdminClient":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def slots(self) -> dict[str, Any]:
        return self._ask("GET", "slots")

    def status(self) -> dict[str, Any]:
        return self._ask("GET", "status")

    def show(self, conversation: str) -> dict[str, Any]:
        return self._ask("GET", f"conversations/{quote(conversation, safe='')}")

    def explain(self, response: str) -> dict[str, Any]:
        return self._ask("GET", f"responses/{quote(response, safe='')}")

    def pin(self, conversation: str, minutes: float | None) -> dict[str, Any]:
        path = f"conversations/{quote(conversation, safe='')}/pin"
        return self._ask("POST", path, {"minutes": minutes})

    def unpin(self, conversation: str) -> dict[str, Any]:
        return self._ask("DELETE", f"conversations/{quote(conversation, safe='')}/pin")

    def evict(self, conversation: str) -> dict[str, Any]:
        return self._ask("POST", f"conversations/{quote(conversation, safe='')}/evict")

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        try:
            answer = self._http.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise AdminError(
                f"No server answers at {self._url} ({error}). "
                "Start one with `ninfer-proxy serve`, or say where it is with NINFER_PROXY_URL."
            ) from error
        document = _document(answer)
        if answer.is_success and document is not None:
            return document
        raise AdminError(self._refusal(answer, document))

    def _refusal(self, answer: httpx.Response, document: Mapping[str, Any] | None) -> str:
        error = document.get("error") if document else None
        if not isinstance(error, dict) or "message" not in error:
            return (
                f"{self._url} answers ({answer.status_code}), but not as a ninfer-proxy would. "
                "Is NINFER_PROXY_URL right?"
            )
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            return (
                f"{self._url} refused the admin token. Set NINFER_PROXY_ADMIN_TOKEN to that server's token, or "
                "NINFER_PROXY_DATA_DIR to its data directory."
            )
        return str(error["message"])


def _document(answer: httpx.Response) -> dict[str, Any] | None:
    try:
        document = answer.json()
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
