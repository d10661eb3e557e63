"""The one place that imports the HTTP client, so that it can be exchanged in one place.

It takes as long to import as all else about attaching to a life, which needs none: so it is imported when
somebody asks for the first of its names."""

from __future__ import annotations

import functools
import logging
import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from httpx import (
        AsyncClient,
        ConnectError,
        HTTPError,
        InvalidURL,
        NetworkError,
        RemoteProtocolError,
        Response,
        TimeoutException,
    )

__all__ = (
    "AsyncClient",
    "ConnectError",
    "HTTPError",
    "InvalidURL",
    "NetworkError",
    "RemoteProtocolError",
    "Response",
    "TimeoutException",
    "client",
)

for _name in ("httpx", "httpcore"):
    # What they say at lower levels holds URLs and headers, and so what a provider echoes of a key.
    logging.getLogger(_name).setLevel(logging.WARNING)


READ_SECONDS = 1800.0
"""Longest silence within an answer. Streams have pings, and the longest thinking before a first byte is far
below it; a connection whose other end is gone must not hang a turn for ever."""


def client(*, connect_s: float = 30.0, read_s: float = READ_SECONDS) -> AsyncClient:
    """A client for providers: it is patient, follows no redirect (a key must not travel to another host), and
    reads no proxy settings but the environment's."""
    import httpx

    return httpx.AsyncClient(
        timeout=httpx.Timeout(None, connect=connect_s, read=read_s),
        limits=httpx.Limits(max_connections=100),
        follow_redirects=False,
        verify=_certificates(),
    )


@functools.cache
def _certificates() -> ssl.SSLContext:
    """Read once: it takes longer than all else about a client, and each life has a client."""
    import httpx

    return httpx.create_ssl_context()


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(name)
    import httpx

    return getattr(httpx, name)
