"""What the scripted model answers, and how rudely it is delivered.

A :class:`Reply` is what a policy returns: the blocks of one assistant message, a :class:`Style` (how
the same message looks on the wire) and faults (what goes wrong on the way). Style never changes what
a correct client understands; faults do. All of them can be written as JSON (see ``policies.script``).
The surprise: an event index that lies past the end means the last event, so a fault always strikes.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field


class Text(Struct, frozen=True, tag="text"):
    """A text block. Lone surrogates are allowed; they travel as escapes."""

    text: str


class Thinking(Struct, frozen=True, tag="thinking"):
    """A thinking block with its signature."""

    thinking: str
    signature: str = "c2NyaXB0ZWQ="


class ToolUse(Struct, frozen=True, tag="tool_use"):
    """A tool call. ``id`` empty: a fresh unique one. ``raw``: this text is sent instead of ``input``.

    ``raw`` is for arguments that Python would write differently (odd spacing, duplicate keys). A
    request without streaming needs it to be valid JSON.
    """

    name: str
    input: dict[str, object] = field(default_factory=dict[str, object])
    id: str = ""
    raw: str = ""


Block = Text | Thinking | ToolUse


class Usage(Struct, frozen=True):
    """Tokens, as the API counts them: ``input_tokens`` excludes both cache numbers."""

    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0


class Style(Struct, frozen=True):
    """How a reply looks on the wire. The zero value is tidy and quick.

    ``split_text``/``split_input``: each delta has 1..n characters (0: few, even pieces).
    ``split_bytes``: each HTTP chunk and TCP write has 1..n bytes, wherever that cuts (0: one per event).
    Delays are seconds: ``start_delay`` before the status line, ``event_delay`` after each event.
    """

    seed: int = 0
    pretty: bool = False
    escape: bool = False
    split_text: int = 0
    split_input: int = 0
    split_bytes: int = 0
    pings: bool = False
    comments: bool = False
    padding: bool = False
    crlf: bool = False
    gzip: bool = False
    start_delay: float = 0.0
    event_delay: float = 0.0


class HttpError(Struct, frozen=True, tag="http_error"):
    """An error status instead of an answer. ``kind`` and ``message`` empty: the API's usual ones."""

    status: int
    kind: str = ""
    message: str = ""
    headers: dict[str, str] = field(default_factory=dict[str, str])


class StreamError(Struct, frozen=True, tag="stream_error"):
    """An ``error`` event in place of event ``event``, after status 200; then the stream ends."""

    event: int
    kind: str = "overloaded_error"
    message: str = "Overloaded"


class Cut(Struct, frozen=True, tag="cut"):
    """The stream stops after ``after_bytes`` of event ``event``.

    ``close``: the connection ends without the last HTTP chunk. ``reset``: with a TCP reset. ``end``:
    the HTTP response ends properly and only the rest of the message is missing.
    """

    event: int
    how: Literal["close", "reset", "end"] = "close"
    after_bytes: int = 0


class Hang(Struct, frozen=True, tag="hang"):
    """Silence of ``seconds`` before event ``event``; then it goes on (or meets the next fault)."""

    event: int
    seconds: float


Fault = HttpError | StreamError | Cut | Hang


class Reply(Struct, frozen=True):
    """One assistant message. ``style`` or ``faults`` left at None: the provider's mood decides.

    ``id`` empty: a fresh one. ``stop_reason`` empty: ``tool_use`` if a tool is called, else
    ``end_turn``. ``usage`` None: estimated from sizes, the same each time.
    """

    blocks: tuple[Block, ...] = ()
    style: Style | None = None
    faults: tuple[Fault, ...] | None = None
    start_delay: float = 0.0
    event_delay: float = 0.0
    stop_reason: str = ""
    usage: Usage | None = None
    id: str = ""

    def why_stopped(self) -> str:
        """The ``stop_reason`` to send."""
        calls = any(isinstance(block, ToolUse) for block in self.blocks)
        return self.stop_reason or ("tool_use" if calls else "end_turn")


def say(text: str) -> Reply:
    """A reply of one text block, which ends the turn."""
    return Reply((Text(text),))
