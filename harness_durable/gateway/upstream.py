"""Where model calls go, and with which key. The only place that knows the key.

Answers come decoded and without the headers that describe the coding or the connection, so that whoever
passes them on cannot describe a changed body by the old ones."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
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
_SECRET_NAME = re.compile("key|token|secret|auth|cookie", re.IGNORECASE)

Headers = Sequence[tuple[str, str]]


class Upstream(msgspec.Struct, frozen=True):
    """A provider. ``auth`` of ``key``: we present ``key``, and what the harness presents stays here.
    ``login``: the harness has a login of its own, which is passed on. ``headers`` are added to every
    request. Raises ``BadSetting`` for a URL or a key that cannot work."""

    base_url: str
    key: str | None = None
    headers: Mapping[str, str] = {}
    auth: Literal["key", "login"] = "key"

    def __post_init__(self) -> None:
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadSetting("the provider's base URL must look like https://api.example.com; set another")
        if self.key is not None and not re.fullmatch(r"[!-~]+", self.key):
            raise BadSetting(
                "the provider's key is empty or holds characters that no header can carry, such as a line "
                "break at its end; set it again"
            )

    def __repr__(self) -> str:
        host = urlsplit(self.base_url).hostname
        key = "***" if self.key else None
        return f"Upstream(host={host!r}, key={key}, headers={sorted(self.headers)}, auth={self.auth!r})"

    def __rich_repr__(self) -> Iterable[str]:
        yield repr(self)

    def url(self, target: str) -> str:
        """The full URL of a path with its query."""
        return self.base_url.rstrip("/") + target

    def scrub(self, text: str) -> str:
        """The text without any secret of ours, should somebody have echoed it."""
        for secret in self._secrets():
            text = text.replace(secret, "***")
        return text

    def scrub_bytes(self, body: bytes) -> bytes:
        for secret in self._secrets():
            body = body.replace(secret.encode(), b"***")
        return body

    def _secrets(self) -> list[str]:
        values = [value for name, value in self.headers.items() if _SECRET_NAME.search(name)]
        return [secret for secret in (self.key, *values) if secret]


class Answer(msgspec.Struct, frozen=True):
    """An answer as it begins; ``chunks`` gives its body, decoded. Errors come as ``ProviderError``."""

    status: int
    headers: Headers
    chunks: AsyncIterator[bytes]

    @property
    def content_type(self) -> str:
        return next((value for name, value in self.headers if name == "content-type"), "")


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
) -> AsyncIterator[Answer]:
    """Send one request, once. Raises ``ProviderError`` if there is no answer or it breaks off, also while
    ``chunks`` is read. A client that stops reading early closes the connection."""
    sent = _sent(upstream, credentials, headers)
    try:
        async with client.stream(method, upstream.url(target), headers=sent, content=body) as response:
            _check_coding(response)
            answered = [
                (name.lower(), upstream.scrub(value))
                for name, value in response.headers.multi_items()
                if name.lower() not in _CONNECTION | _CODING | _SESSION
            ]
            yield Answer(response.status_code, answered, _chunks(response))
    except (_http.HTTPError, _http.InvalidURL) as error:
        said = upstream.scrub(str(error)) or "no reason given"
        host = urlsplit(upstream.base_url).hostname
        # "from None": the client's own errors may hold the request with its headers.
        raise ProviderError(
            f"no whole answer from {host} ({type(error).__name__}: {said}); it is the harness's to try again"
        ) from None


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


def _sent(upstream: Upstream, credentials: Mapping[str, str], headers: Headers) -> list[tuple[str, str]]:
    own = upstream.auth == "key"
    ours = {"accept-encoding": "identity", **(credentials if own else {})}
    ours.update({name.lower(): value for name, value in upstream.headers.items()})
    dropped = _CONNECTION | _CODING - {"content-encoding"} | (_CREDENTIALS if own else set[str]()) | ours.keys()
    return [(name, value) for name, value in headers if name.lower() not in dropped] + list(ours.items())


def _check_coding(response: _http.Response) -> None:
    codings = {part.strip().lower() for part in response.headers.get("content-encoding", "").split(",")}
    if unknown := codings - _DECODED - {""}:
        raise ProviderError(
            f"the provider's answer is packed with {', '.join(sorted(unknown))} although we asked for none; "
            "take what stands between us and the provider out of the way"
        )
