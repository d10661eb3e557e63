"""Traces to a receiver, by OTLP/HTTP."""

from __future__ import annotations

import os
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

import msgspec

from harness_durable import _http as http
from harness_durable.errors import BadInput, HarnessDurableError
from harness_durable.payload import clean

HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
"""The variable in which OpenTelemetry's own exporters look for a receiver's key: ``name=value,…``."""


class _Partial(msgspec.Struct, rename="camel"):
    rejected_spans: str | int = 0
    error_message: str = ""


class _Answer(msgspec.Struct, rename="camel"):
    partial_success: _Partial | None = None


def place(endpoint: str) -> str:
    """Where traces go at a receiver that is named by its base, or by the whole path. Raises ``BadInput``."""
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadInput(f"--otlp-endpoint {endpoint!r} is no URL; use for instance http://127.0.0.1:4318")
    path = parts.path.rstrip("/")
    return parts._replace(path=path if path.endswith("/v1/traces") else path + "/v1/traces").geturl()


async def send(requests: Iterable[bytes], endpoint: str) -> int:
    """Post each request; how many there were. Raises ``HarnessDurableError`` at the first that is not taken;
    to send all again does no harm, as the ids are the same."""
    url, sent = place(endpoint), 0
    headers = {"content-type": "application/json", **_headers(os.environ.get(HEADERS, ""))}
    async with http.client(connect_s=10, read_s=60) as client:
        for request in requests:
            try:
                answer = await client.post(url, content=request, headers=headers)
            except (http.HTTPError, http.InvalidURL) as error:
                raise _refused(url, f"{type(error).__name__} {error}") from None
            if answer.status_code >= 300:
                raise _refused(url, f"status {answer.status_code}: {answer.text[:200]}")
            _check(url, answer.content)
            sent += 1
    return sent


def _check(url: str, content: bytes) -> None:
    try:
        partial = msgspec.json.decode(content or b"{}", type=_Answer).partial_success
    except msgspec.MsgspecError:  # taken, with an answer that is none: nothing to find out
        return
    if partial is not None and int(partial.rejected_spans or 0):
        raise _refused(url, f"{partial.rejected_spans} spans rejected: {clean(partial.error_message)[:200]}")


def _refused(url: str, why: str) -> HarnessDurableError:
    shown = urlsplit(url)
    where = shown._replace(netloc=shown.netloc.rpartition("@")[2], query="").geturl()
    return HarnessDurableError(
        f"the receiver at {where} did not take the traces ({why}); see to it and send them again, their ids "
        "stay the same"
    )


def _headers(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",") if "=" in pair]
    return {name.strip().lower(): unquote(value.strip()) for name, _, value in pairs}
