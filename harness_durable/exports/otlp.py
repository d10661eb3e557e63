"""OpenTelemetry traces in the JSON of OTLP/HTTP, by the semantic conventions for generative AI.

One trace a session: a span for it, each turn (``invoke_agent``), life, model call (``chat``) and run of a
tool call (``execute_tool``); every event of the log is a span event. Ids follow from the session and ``seq``,
so that sending twice makes nothing twice. What surprises: a lost run and its successor link to each other,
since a viewer shows the links of the span that is looked at only."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec

from harness_durable import events as ev
from harness_durable.codec import kind_of
from harness_durable.exports import genai
from harness_durable.exports.material import Material
from harness_durable.exports.spans import Span, Spans
from harness_durable.payload import clean

BATCH = 200
"""Spans in a request."""
BATCH_BYTES = 2 << 20
"""And their bytes: receivers refuse requests over 4 MiB (gRPC's default) to 20 MiB."""

_KINDS = {"session": 1, "turn": 1, "life": 1, "model": 3, "tool": 1}
"""Ours are INTERNAL, and CLIENT is who asks a provider."""
_ERROR = 2

Attribute = dict[str, Any]


def otlp(material: Material) -> Iterator[bytes]:
    """Export requests, each a line: what OTLP's file format holds, and what a receiver takes."""
    found = Spans(material)
    happened: dict[tuple[str, int], list[Attribute]] = {}
    for entry in material.entries:
        span = found.of(entry.event)
        happened.setdefault((span.kind, span.seq), []).append(_event(entry))
    before = {_key(one.successor): one for one in found.all() if one.successor is not None}
    trace = _trace_id(material)
    batch: list[bytes] = []
    for span in found.all():
        encoded = msgspec.json.encode(_span(material, trace, span, happened, before))
        if batch and (len(batch) >= BATCH or sum(map(len, batch)) + len(encoded) > BATCH_BYTES):
            yield _request(material, batch)
            batch = []
        batch.append(encoded)
    if batch:
        yield _request(material, batch)


def _request(material: Material, spans: list[bytes]) -> bytes:
    from harness_durable import __version__

    about = {"service.name": "harness-durable", "service.version": __version__}
    scope: dict[str, Any] = {
        "scope": {"name": "harness_durable", "version": __version__},
        "spans": [msgspec.Raw(span) for span in spans],
    }
    resource = {"attributes": attributes(about)}
    return msgspec.json.encode({"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}) + b"\n"


def _span(
    material: Material,
    trace: str,
    span: Span,
    happened: dict[tuple[str, int], list[Attribute]],
    before: dict[tuple[str, int], Span],
) -> dict[str, Any]:
    linked: list[dict[str, Any]] = []
    if span.successor is not None:
        linked.append(_link(trace, span.successor, "successor"))
    if _key(span) in before:
        linked.append(_link(trace, before[_key(span)], "lost"))
    failed = span.status in ("failed", "lost")
    said: dict[str, Any] = {
        "traceId": trace,
        "spanId": _span_id(trace, span),
        "name": clean(span.name),
        "kind": _KINDS[span.kind],
        "startTimeUnixNano": _nanos(span.start),
        "endTimeUnixNano": _nanos(max(span.start, span.end)),
        "attributes": attributes(genai.attributes(material, span)),
        "events": happened.get(_key(span), []),
        "links": linked,
        "status": {"code": _ERROR, "message": clean(span.reason or span.word)} if failed else {},
    }
    if span.parent is not None:
        said["parentSpanId"] = _span_id(trace, span.parent)
    return said


def _event(entry: ev.Entry) -> dict[str, Any]:
    """A span event: what the log's event says in a word or a number; what people said is on the spans."""
    said: dict[str, Any] = {"harness_durable.seq": entry.seq, "harness_durable.epoch": entry.epoch}
    for name in entry.event.__struct_fields__:
        value: object = getattr(entry.event, name)
        if isinstance(value, str | int) and value != "":
            said[f"harness_durable.{name}"] = value
    return {
        "timeUnixNano": _nanos(entry.time),
        "name": kind_of(entry.event),
        "attributes": attributes(said),
    }


def _link(trace: str, span: Span, what: str) -> dict[str, Any]:
    return {
        "traceId": trace,
        "spanId": _span_id(trace, span),
        "attributes": attributes({"harness_durable.link": what}),
    }


def attributes(values: dict[str, Any]) -> list[Attribute]:
    """As OTLP's JSON has them: integers as strings, since JSON has none of 64 bits."""
    return [{"key": key, "value": _any(value)} for key, value in values.items() if value is not None]


def _any(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case list():
            return {"arrayValue": {"values": [_any(one) for one in value]}}  # pyright: ignore[reportUnknownVariableType]
        case _:
            return {"stringValue": clean(str(value))}


def _trace_id(material: Material) -> str:
    seed = f"{material.session}\0{material.state.native_id}\0{material.state.created}"
    return hashlib.sha256(clean(seed).encode()).hexdigest()[:32]


def _span_id(trace: str, span: Span) -> str:
    return hashlib.sha256(f"{trace}\0{span.kind}\0{span.seq}".encode()).hexdigest()[:16]


def _key(span: Span) -> tuple[str, int]:
    return span.kind, span.seq


def _nanos(ms: int) -> str:
    return str(max(0, ms) * 1_000_000)
