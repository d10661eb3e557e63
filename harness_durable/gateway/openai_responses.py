"""The wire of OpenAI's Responses API, as Codex, and OpenCode and Pi with OpenAI's own models, speak it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness_durable.gateway import (
    openai_media,
    openai_responses_forms,
    openai_responses_request,
    openai_responses_response,
)
from harness_durable.gateway.openai_common import OpenAI
from harness_durable.gateway.openai_responses_response import ResponseCollector
from harness_durable.gateway.wire import Collector, Parsed, Placed


class Responses(OpenAI):
    """A ``Wire``; see there for what each method is for.

    ``/v1/responses/compact`` is no model path, and a WebSocket is refused: Codex uses both with OpenAI's own
    endpoint only, and ordinary calls elsewhere."""

    name = "openai-responses"
    list_field = "input"
    path = "/v1/responses"

    def match_key(self, body: bytes, path: str) -> str:
        return openai_responses_request.match_key(body)

    def media(self, body: bytes) -> Sequence[Placed]:
        return openai_media.media(body, openai_media.RESPONSES)

    def blamed(self, found: Sequence[Placed], said: str) -> Sequence[Placed] | None:
        return openai_media.blamed(found, said)

    def withhold(self, body: bytes, notes: Mapping[str, str]) -> bytes:
        return openai_media.withhold(body, notes, openai_media.RESPONSES)

    def collector(self) -> Collector:
        return ResponseCollector()

    def parse_json(self, body: bytes) -> Parsed:
        return openai_responses_response.parse_json(body)

    def with_tool_ids(self, parsed: Parsed, ids: Sequence[str], *, streamed: bool) -> Parsed:
        return openai_responses_forms.with_tool_ids(parsed, ids, streamed=streamed)

    def to_json(self, body: bytes) -> bytes:
        return openai_responses_forms.to_json(body)

    def to_sse(self, body: bytes) -> bytes:
        return openai_responses_forms.to_sse(body)
