"""The wire of OpenAI's Chat Completions API, as OpenCode and Pi, and most providers, speak it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness_durable.gateway import (
    openai_chat_forms,
    openai_chat_request,
    openai_chat_response,
    openai_media,
)
from harness_durable.gateway.openai_chat_response import CompletionCollector
from harness_durable.gateway.openai_common import OpenAI
from harness_durable.gateway.wire import Collector, Parsed, Placed


class Chat(OpenAI):
    """A ``Wire``; see there for what each method is for."""

    name = "openai-chat"
    list_field = "messages"
    path = "/v1/chat/completions"

    def match_key(self, body: bytes, path: str) -> str:
        return openai_chat_request.match_key(body)

    def media(self, body: bytes) -> Sequence[Placed]:
        return openai_media.media(body, openai_media.CHAT)

    def blamed(self, found: Sequence[Placed], said: str) -> Sequence[Placed] | None:
        return openai_media.blamed(found, said)

    def withhold(self, body: bytes, notes: Mapping[str, str]) -> bytes:
        return openai_media.withhold(body, notes, openai_media.CHAT)

    def collector(self) -> Collector:
        return CompletionCollector()

    def parse_json(self, body: bytes) -> Parsed:
        return openai_chat_response.parse_json(body)

    def with_tool_ids(self, parsed: Parsed, ids: Sequence[str], *, streamed: bool) -> Parsed:
        return openai_chat_forms.with_tool_ids(parsed, ids, streamed=streamed)

    def to_json(self, body: bytes) -> bytes:
        return openai_chat_forms.to_json(body)

    def to_sse(self, body: bytes) -> bytes:
        return openai_chat_forms.to_sse(body)
