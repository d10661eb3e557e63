"""The one place that imports the HTTP client, so that it can be exchanged in one place."""

from __future__ import annotations

import functools
import logging
import ssl

import httpx
from httpx import (
    AsyncClient,
    ConnectError,
    HTTPError,
    InvalidURL,
    Limits,
    NetworkError,
    RemoteProtocolError,
    Response,
    Timeout,
    TimeoutException,
)

__all__ = (
    "AsyncClient",
    "ConnectError",
    "HTTPError",
    "InvalidURL",
    "Limits",
    "NetworkError",
    "RemoteProtocolError",
    "Response",
    "Timeout",
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
    return httpx.AsyncClient(
        timeout=Timeout(None, connect=connect_s, read=read_s),
        limits=Limits(max_connections=100),
        follow_redirects=False,
        verify=_certificates(),
    )


@functools.cache
def _certificates() -> ssl.SSLContext:
    """Read once: it takes longer than all else about a client, and each life has a client."""
    return httpx.create_ssl_context()
