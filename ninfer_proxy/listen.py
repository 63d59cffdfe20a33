"""Where the service listens: the socket, and the URL that leads to it. Knows nothing of what is served."""

import socket

from ninfer_proxy.errors import StartRefused

BACKLOG = 2048


def listening(host: str, port: int) -> socket.socket:
    """A listening TCP socket; port 0 takes a free one. Errors: StartRefused."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Only where the protocol is named does asyncio switch off Nagle's algorithm, which holds back small answers for 40 ms.
    opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # Ports of connections that have just ended may be taken; one that is listened on may not.
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, port))
        opened.listen(BACKLOG)
    except OSError as error:
        opened.close()
        raise StartRefused(
            f"Can't listen on {host} port {port}: {error.strerror or error}. "
            "Name another with --port or --host; port 0 takes a free one."
        ) from error
    return opened


def base_url(host: str, port: int) -> str:
    """The server's URL without a path; an IPv6 address is put in brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
