"""Where model calls go, and with which key. The only place that knows the key.

Answers come decoded and without the headers that describe the coding or the connection, so that whoever
passes them on cannot describe a changed body by the old ones."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from harness_durable import _http
from harness_durable.errors import BadSetting, ProviderError

MAX_ANSWER = 128 << 20
"""Bytes of one answer. Far above any model's context; a World's largest blob is twice of it."""

_CONNECTION = {
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}
_CODING = {"accept-encoding", "content-encoding"}
_SESSION = {"set-cookie", "alt-svc"}
_CREDENTIALS = {"x-api-key", "authorization", "x-goog-api-key", "api-key", "cookie"}
_DECODED = {"identity", "gzip", "x-gzip", "deflate"}
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"([!-~]([\t -~]*[!-~])?)?")
_SECRET_NAME = re.compile("key|token|secret|auth|cookie", re.IGNORECASE)

Headers = Sequence[tuple[str, str]]


class Upstream(msgspec.Struct, frozen=True):
    """A provider. ``auth`` of ``key``: we present ``key``, and what the harness presents stays here.
    ``login``: the harness has a login of its own, which is passed on. ``headers`` are added to every
    request. ``version``: how targets begin that a base URL with a path holds already. Raises ``BadSetting``
    for a URL or a key that cannot work."""

    base_url: str
    key: str | None = None
    headers: Mapping[str, str] = {}
    auth: Literal["key", "login"] = "key"
    version: str = ""

    def __post_init__(self) -> None:
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadSetting("the provider's base URL must look like https://api.example.com; set another")
        if self.key is not None and not re.fullmatch(r"[!-~]+", self.key):
            raise BadSetting(
                "the provider's key is empty or holds characters that no header can carry, such as a line "
                "break at its end; set it again"
            )
        for name, value in self.headers.items():
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
                raise BadSetting(f"the provider's header {name!r} cannot be sent as it is; set it again")

    def __repr__(self) -> str:
        host = urlsplit(self.base_url).hostname
        key = "***" if self.key else None
        return f"Upstream(host={host!r}, key={key}, headers={sorted(self.headers)}, auth={self.auth!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("host", urlsplit(self.base_url).hostname), ("auth", self.auth)]

    def url(self, target: str) -> str:
        """The full URL of a path with its query."""
        base = self.base_url.rstrip("/")
        return base + (target.removeprefix(self.version) if urlsplit(base).path else target)

    def scrub(self, said: bytes) -> bytes:
        """What was said without any secret of ours, should somebody have echoed it."""
        values = (value for name, value in self.headers.items() if _SECRET_NAME.search(name))
        for secret in (self.key, urlsplit(self.base_url).password, *values):
            if secret:
                said = said.replace(secret.encode(), b"***")
        return said

    def scrub_text(self, said: str) -> str:
        return self.scrub(said.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")


class Answer(msgspec.Struct, frozen=True):
    """An answer as it begins; ``chunks`` gives its body, decoded. Errors come as ``ProviderError``."""

    status: int
    headers: Headers
    chunks: AsyncIterator[bytes]

    @property
    def content_type(self) -> str:
        return next((value for name, value in self.headers if name == "content-type"), "")


Asking = AbstractAsyncContextManager[Answer]


@asynccontextmanager
async def ask(
    client: _http.AsyncClient,
    upstream: Upstream,
    credentials: Mapping[str, str],
    *,
    method: str,
    target: str,
    headers: Headers,
    body: bytes,
) -> AsyncGenerator[Answer]:
    """Send one request, once. Raises ``ProviderError`` if there is no answer or it breaks off, also while
    ``chunks`` is read. A client that stops reading early closes the connection."""
    sent = _sent(upstream, credentials, headers)
    try:
        async with client.stream(method, upstream.url(target), headers=sent, content=body) as response:
            _check_coding(response)
            answered = [
                (name.lower(), upstream.scrub_text(value))
                for name, value in response.headers.multi_items()
                if name.lower() not in _CONNECTION | _CODING | _SESSION
            ]
            yield Answer(response.status_code, answered, _chunks(response))
    except (_http.HTTPError, _http.InvalidURL) as error:
        said = upstream.scrub_text(str(error)) or "no reason given"
        what = _plainly(error, urlsplit(upstream.base_url).hostname or "the provider")
        # "from None": the client's own errors may hold the request with its headers.
        raise ProviderError(
            f"{what}; the harness tries again by itself ({type(error).__name__}: {said})"
        ) from None


def _plainly(error: Exception, host: str) -> str:
    """What went wrong, in people's words."""
    match error:
        case _http.ConnectError():
            return f"{host} cannot be reached"
        case _http.TimeoutException():
            return f"{host} gave no answer in time"
        case _http.RemoteProtocolError() | _http.NetworkError():
            return f"the connection to {host} broke before the whole answer was there"
        case _:
            return f"no whole answer from {host}"


async def collect(answer: Answer) -> bytes:
    """The whole body."""
    return b"".join([chunk async for chunk in answer.chunks])


async def _chunks(response: _http.Response) -> AsyncIterator[bytes]:
    size = 0
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > MAX_ANSWER:
            raise ProviderError(f"the provider's answer is larger than {MAX_ANSWER} bytes; ask for less")
        if chunk:
            yield chunk


def _sent(upstream: Upstream, credentials: Mapping[str, str], headers: Headers) -> list[tuple[bytes, bytes]]:
    """As bytes, since a header may hold some that are not ASCII."""
    own = upstream.auth == "key"
    ours = {"accept-encoding": "identity", **(credentials if own else {})}
    ours.update({name.lower(): value for name, value in upstream.headers.items()})
    dropped = (
        _CONNECTION | _CODING - {"content-encoding"} | (_CREDENTIALS if own else set[str]()) | ours.keys()
    )
    kept = [(name, value) for name, value in headers if name.lower() not in dropped]
    return [(name.encode(), value.encode("latin-1")) for name, value in [*kept, *ours.items()]]


def _check_coding(response: _http.Response) -> None:
    codings = {part.strip().lower() for part in response.headers.get("content-encoding", "").split(",")}
    if unknown := codings - _DECODED - {""}:
        raise ProviderError(
            f"the provider's answer is packed with {', '.join(sorted(unknown))} although we asked for none; "
            "take what stands between us and the provider out of the way"
        )
