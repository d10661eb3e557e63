"""The contract of a wire, from the provider's side: what it must know of one model API, and nothing of HTTP.

Written without the gateway's wires on purpose, so that the two cannot share a mistake."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from harness_durable.testing.provider.encode import Event
from harness_durable.testing.provider.messages import Request
from harness_durable.testing.provider.reply import Reply, StreamError, Style, Usage


class Answer(Struct, frozen=True):
    """What a policy said to a request. ``reply`` has its ids already."""

    reply: Reply
    usage: Usage
    request: Request


class Wire(Protocol):
    """One model API. Stateless."""

    @property
    def name(self) -> str: ...

    @property
    def path(self) -> str:
        """Where model calls are posted to."""
        ...

    @property
    def message_prefix(self) -> str:
        """How ids of responses begin."""
        ...

    @property
    def call_prefix(self) -> str:
        """How ids of tool calls begin."""
        ...

    def parse(self, raw: bytes) -> Request:
        """The request in the form that policies see. Raises ``BadInput`` if it is none."""
        ...

    def complaint(self, request: Request) -> str:
        """Why this API would answer 400, beside the rules that all share; empty if it would not."""
        ...

    def stream(self, answer: Answer, style: Style) -> list[bytes]:
        """The events of the stream. Without the last one a client has no whole message."""
        ...

    def whole(self, answer: Answer) -> bytes:
        """The answer to a request without streaming."""
        ...

    def error(self, status: int, kind: str, message: str) -> Event:
        """The body of an error. ``kind`` and ``message`` empty: the usual ones."""
        ...

    def broken(self, fault: StreamError, message_id: str) -> bytes:
        """What comes in place of an event when the answer breaks off with an error."""
        ...
