"""What a model said, in a response as it was kept: streamed or not, of any wire."""

from __future__ import annotations


def said(wire: str, body: bytes) -> str:
    """The visible text of a response; empty where it has none, or is of a wire that is not known."""
    from harness_durable.gateway import WIRES  # with an HTTP server, which only those who ask here pay for

    known = WIRES.get(wire)
    if known is None or not body:
        return ""
    if body.lstrip().startswith(b"{"):  # not streamed
        body = known.to_sse(body) if known.parse_json(body).complete else b""
    collector = known.collector()
    collector.feed(body)
    collector.finish()
    return collector.text_delta()
