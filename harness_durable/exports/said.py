"""What a model said, in a response as it was kept: streamed or not, of any wire."""

from __future__ import annotations

from harness_durable.gateway import WIRES


def said(wire: str, body: bytes) -> str:
    """The visible text of a response; empty where it has none, or is of a wire that is not known."""
    known = WIRES.get(wire)
    if known is None or not body:
        return ""
    collector = known.collector()
    streamed = body if not body.lstrip().startswith(b"{") else _streamed(wire, body)
    collector.feed(streamed)
    collector.finish()
    return collector.text_delta()


def _streamed(wire: str, body: bytes) -> bytes:
    return WIRES[wire].to_sse(body) if WIRES[wire].parse_json(body).complete else b""
