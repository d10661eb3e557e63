"""What tests of OpenAI's two wires share: streams of the scripted provider and of their own, and readers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from hypothesis import strategies as st

from harness_durable.gateway.wire import Parsed, Wire
from harness_durable.testing.provider import Reply, Style, Usage, wires
from harness_durable.testing.provider.wires import Answer
from tests.unit.gateway_kit import MODEL, TOKEN, Got, Rig

PAID = Usage(11, 22, 33, 44)
STYLES = st.builds(
    Style,
    seed=st.integers(0, 99),
    split_text=st.integers(0, 4),
    split_input=st.integers(0, 4),
    pings=st.booleans(),
    comments=st.booleans(),
    padding=st.booleans(),
    crlf=st.booleans(),
)


def answer(wire: str, reply: Reply, *tools: Mapping[str, object]) -> Answer:
    """What a policy has said to a request that offers these tools."""
    body = {"model": "model-x", "stream_options": {"include_usage": True}, "tools": list(tools)}
    request = wires.named(wire).parse(json.dumps({**body, "input": "go", "messages": []}).encode())
    return Answer(reply, PAID, request)


def collected(wire: Wire, chunks: Iterable[bytes]) -> tuple[Parsed, str]:
    """A stream as the gateway takes it, and the text that people saw meanwhile."""
    collector = wire.collector()
    said = ""
    for chunk in chunks:
        collector.feed(chunk)
        said += collector.text_delta()
    return collector.finish(), said


def frames(*events: Mapping[str, object] | str) -> bytes:
    """Events as they are; a text is the data itself."""
    lines = [event if isinstance(event, str) else json.dumps(event) for event in events]
    return b"".join(b"data: %s\n\n" % line.encode() for line in lines)


PATHS = {"openai-responses": "/v1/responses", "openai-chat": "/v1/chat/completions"}
BEARER = {"x-api-key": "", "authorization": f"Bearer {TOKEN}"}


def asking(speaks: str, *said: object, stream: bool = True, **more: object) -> dict[str, object]:
    """A conversation whose messages are the user's and the model's in turn; one is a text or parts."""
    items = [{"role": ("user", "assistant")[at % 2], "content": one} for at, one in enumerate(said)]
    field = "input" if speaks == "openai-responses" else "messages"
    return {"model": MODEL, "stream": stream, field: items, **more}


async def ask(rig: Rig, body: Mapping[str, object], headers: Mapping[str, str] | None = None) -> Got:
    """One request to a gateway that speaks the wire of the body."""
    path = PATHS["openai-responses" if "input" in body else "openai-chat"]
    return await rig.ask(body, path=path, headers={**BEARER, **(headers or {})})
