"""A chain of hashes over a head and the items behind it: one value that names a line up to a position. Knows digests only."""

from collections.abc import Sequence

from blake3 import blake3

from ninfer_proxy.types import Fingerprint, Head, ItemDigest

FINGERPRINT_BYTES = 16


def start(head: Head) -> Fingerprint:
    """The fingerprint of a line that has nothing but its head."""
    return _link(b"head", head.tools, head.instructions)


def extend(fingerprint: Fingerprint, digest: ItemDigest) -> Fingerprint:
    """The fingerprint one item further on."""
    return _link(b"item", fingerprint, digest)


def fingerprints(head: Head, chain: Sequence[ItemDigest]) -> tuple[Fingerprint, ...]:
    """The fingerprint behind the head and behind each item: `len(chain) + 1` values."""
    links = [start(head)]
    for digest in chain:
        links.append(extend(links[-1], digest))
    return tuple(links)


def _link(*parts: bytes) -> Fingerprint:
    return Fingerprint(blake3(b"".join(parts)).digest(length=FINGERPRINT_BYTES))
