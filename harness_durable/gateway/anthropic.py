"""The wire of Anthropic's Messages API, as Claude Code and others speak it."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence

import msgspec

from harness_durable.gateway import (
    anthropic_forms,
    anthropic_media,
    anthropic_request,
    anthropic_response,
    rawjson,
)
from harness_durable.gateway.anthropic_request import RESUME_SENTINEL
from harness_durable.gateway.anthropic_response import MessageCollector
from harness_durable.gateway.bodies import member
from harness_durable.gateway.wire import Collector, Parsed, Placed
from harness_durable.payload import clean

__all__ = ("RESUME_SENTINEL", "Anthropic")

_MODEL = re.compile(r"/v1/models/[A-Za-z0-9._:@-]+")

_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class Anthropic:
    """A ``Wire``; see there for what each method is for."""

    name = "anthropic"
    version = ""
    list_field = "messages"

    def is_model_path(self, method: str, path: str) -> bool:
        return method == "POST" and path.partition("?")[0].rstrip("/") == "/v1/messages"

    def is_free(self, method: str, path: str) -> bool:
        place = path.partition("?")[0]
        if method == "POST":
            return place == "/v1/messages/count_tokens"
        return method == "GET" and (place == "/v1/models" or _MODEL.fullmatch(place) is not None)

    def match_key(self, body: bytes, path: str) -> str:
        return anthropic_request.match_key(body)

    def prepare(self, body: bytes) -> bytes:
        return anthropic_request.prepare(body)

    def in_session(self, body: bytes, session: str) -> bytes:
        return body  # what is cached is found by what it says

    def media(self, body: bytes) -> Sequence[Placed]:
        return anthropic_media.media(body)

    def blamed(self, found: Sequence[Placed], said: str) -> Sequence[Placed] | None:
        return anthropic_media.blamed(found, said)

    def withhold(self, body: bytes, notes: Mapping[str, str]) -> bytes:
        return anthropic_media.withhold(body, notes)

    def model_of(self, body: bytes) -> str:
        return clean(rawjson.text(member(body, "model")))

    def wants_stream(self, body: bytes) -> bool:
        stream = member(body, "stream")
        return stream is not None and bytes(stream) == b"true"

    def agent_of(self, headers: Mapping[str, str]) -> str | None:
        return headers.get("x-claude-code-agent-id") or None

    def credentials(self, key: str) -> Mapping[str, str]:
        return {"x-api-key": key}

    def collector(self) -> Collector:
        return MessageCollector()

    def parse_json(self, body: bytes) -> Parsed:
        return anthropic_response.parse_json(body)

    def with_tool_ids(self, parsed: Parsed, ids: Sequence[str], *, streamed: bool) -> Parsed:
        return anthropic_forms.with_tool_ids(parsed, ids, streamed=streamed)

    def fresh_tool_id(self) -> str:
        return f"toolu_{uuid.uuid4().hex[:24]}"

    def to_json(self, body: bytes) -> bytes:
        return anthropic_forms.to_json(body)

    def to_sse(self, body: bytes) -> bytes:
        return anthropic_forms.to_sse(body)

    def error(self, status: int, message: str) -> bytes:
        kind = _KINDS.get(status, "api_error")
        error = {"type": "error", "error": {"type": kind, "message": clean(message)}}
        return msgspec.json.encode(error)
