"""The contract of a wire: what the gateway must know about one model API, and nothing about HTTP.

A wire is stateless. All bodies are bytes; what the gateway does not have to change stays byte for byte."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from harness_durable.events import Usage
from harness_durable.payload import Media

SSE = "text/event-stream; charset=utf-8"
JSON = "application/json"


class ToolUse(msgspec.Struct, frozen=True):
    """A tool call as it stands in a response. ``input`` is the JSON text exactly as the model wrote it, which
    need not be valid JSON; ``{}`` where it wrote nothing."""

    id: str
    name: str
    input: bytes


class Fault(msgspec.Struct, frozen=True):
    """Why a body is no response. ``status`` is the HTTP status that says the same to the harness."""

    status: int
    message: str


class Parsed(msgspec.Struct, frozen=True):
    """A response body and what it says. ``complete`` only after the provider's normal end of a message;
    otherwise ``fault`` says why not."""

    body: bytes
    complete: bool
    id: str = ""
    stop_reason: str = ""
    usage: Usage = Usage()
    tools: tuple[ToolUse, ...] = ()
    fault: Fault | None = None


class Placed(msgspec.Struct, frozen=True):
    """Media within a request, and where: indices from the outside in, such as message, block, inner block."""

    media: Media
    place: tuple[int, ...]


class Collector(Protocol):
    """Takes a streamed body as it arrives. Chunks may be cut anywhere, also within a character."""

    def feed(self, chunk: bytes) -> None: ...

    def text_delta(self) -> str:
        """Visible text that arrived since the last call of this."""
        ...

    def finish(self) -> Parsed:
        """After the last chunk. Never raises: a damaged stream is an incomplete one."""
        ...


class Wire(Protocol):
    """One model API. Nothing here raises for a body that is no JSON: such a body is passed on, and the
    provider says what is wrong with it."""

    @property
    def name(self) -> str: ...

    @property
    def list_field(self) -> str:
        """The member of a request that repeats the conversation, such as ``messages``."""
        ...

    @property
    def version(self) -> str:
        """How all paths begin, where a base URL of this API usually holds that already; else empty."""
        ...

    def is_model_path(self, method: str, path: str) -> bool:
        """Is this a model call? ``path`` may have a query."""
        ...

    def is_free(self, method: str, path: str) -> bool:
        """Does it neither cost nor store nor change anything? The agent's own shell can reach the gateway
        with the life's token, so all else would be a way to spend the real key outside the log."""
        ...

    def match_key(self, body: bytes, path: str) -> str:
        """Equal for two requests in which the model sees the same, whatever the harness varies."""
        ...

    def prepare(self, body: bytes) -> bytes:
        """What goes upstream: without our own marks, and such that the provider can read it."""
        ...

    def in_session(self, body: bytes, session: str) -> bytes:
        """The body with one name for the session in all of its lives, where the harness has a name in it by
        which the provider finds what it has cached."""
        ...

    def media(self, body: bytes) -> Sequence[Placed]:
        """The images, documents and the like that a request holds, in order, also within results of tools."""
        ...

    def blamed(self, found: Sequence[Placed], said: str) -> Sequence[Placed] | None:
        """Those of a request's media that stand where the provider's error points. Empty: it points at
        something else; None: it points nowhere."""
        ...

    def withhold(self, body: bytes, notes: Mapping[str, str]) -> bytes:
        """The body with a text in the place of each of the media that ``notes`` has, by digest."""
        ...

    def model_of(self, body: bytes) -> str: ...

    def wants_stream(self, body: bytes) -> bool: ...

    def agent_of(self, headers: Mapping[str, str]) -> str | None:
        """Which subagent of the harness asks; None for the main loop. Header names in lower case."""
        ...

    def credentials(self, key: str) -> Mapping[str, str]:
        """Headers that carry the provider's key."""
        ...

    def collector(self) -> Collector: ...

    def parse_json(self, body: bytes) -> Parsed:
        """The same as a collector's ``finish``, for an answer that was not streamed."""
        ...

    def with_tool_ids(self, parsed: Parsed, ids: Sequence[str], *, streamed: bool) -> Parsed:
        """The same response with its tool calls named ``ids``, in order; all else byte for byte."""
        ...

    def fresh_tool_id(self) -> str:
        """An id that was never used before."""
        ...

    def to_json(self, body: bytes) -> bytes:
        """A complete streamed response in the form of one that was not."""
        ...

    def to_sse(self, body: bytes) -> bytes:
        """A complete response that was not streamed in the form of one that was."""
        ...

    def error(self, status: int, message: str) -> bytes:
        """An error body in the provider's shape, as JSON."""
        ...
