"""What the two wires of OpenAI have in common: the address, the key, who asks, and how errors look.

Harnesses are given ``…/v1`` as their base URL. Where the provider's own base URL has a path, that path stands
for ``/v1`` (see ``Upstream.version``), as in OpenAI's own libraries."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Mapping

import msgspec
from msgspec import Raw

from harness_durable.events import Usage
from harness_durable.gateway import bodies, rawjson
from harness_durable.gateway.rawjson import Unreadable
from harness_durable.gateway.wire import Fault
from harness_durable.payload import clean

_MODEL = re.compile(r"/v1/models/[A-Za-z0-9._:@-]+")
_KINDS = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("invalid_request_error", "permission_denied"),
    404: ("invalid_request_error", "not_found"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("requests", "rate_limit_exceeded"),
    503: ("server_error", "server_is_overloaded"),
}
"""The type and the code of an error, by its status."""

_STATUS = {
    "invalid_request_error": 400,
    "invalid_prompt": 400,
    "context_length_exceeded": 400,
    "content_filter": 400,
    "cyber_policy": 400,
    "invalid_api_key": 401,
    "authentication_error": 401,
    "usage_not_included": 403,
    "model_not_found": 404,
    "insufficient_quota": 429,
    "usage_limit_reached": 429,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "server_is_overloaded": 503,
    "slow_down": 503,
    "overloaded_error": 503,
}
_ABOUT_MEDIA = re.compile(r"\w*(image|file)\w*")
_LEAST, _MOST = 400, 599
_CACHE_KEY = "prompt_cache_key"

Members = dict[str, Raw]
Item = dict[str, object]
"""A message or another item of a request, as it is compared."""
EMPTY, NULL = Raw(b"{}"), Raw(b"null")


class OpenAI:
    """The half of a ``Wire`` that is the same for both; see there for what each method is for."""

    version = "/v1"
    path: str

    def is_model_path(self, method: str, path: str) -> bool:
        return method == "POST" and path.partition("?")[0].rstrip("/") == self.path

    def is_free(self, method: str, path: str) -> bool:
        place = path.partition("?")[0]
        return method == "GET" and (place == "/v1/models" or _MODEL.fullmatch(place) is not None)

    def prepare(self, body: bytes) -> bytes:
        return bodies.readable(body)

    def in_session(self, body: bytes, session: str) -> bytes:
        # Codex names the life's own thread there.
        if bodies.member(body, _CACHE_KEY) is None:
            return body
        return rawjson.encode_object({**rawjson.members(body), _CACHE_KEY: rawjson.quote(session)})

    def model_of(self, body: bytes) -> str:
        return clean(rawjson.text(bodies.member(body, "model")))

    def wants_stream(self, body: bytes) -> bool:
        stream = bodies.member(body, "stream")
        return stream is not None and bytes(stream) == b"true"

    def agent_of(self, headers: Mapping[str, str]) -> str | None:
        # OpenCode names a subagent's session and its parent's; Codex tells the agent's path in JSON.
        if headers.get("x-parent-session-id"):
            return headers.get("x-session-id") or None
        told = bodies.member(
            headers.get("x-codex-turn-metadata", "").encode("latin-1", "replace"), "agent_name"
        )
        name = rawjson.text(told)
        return (headers.get("thread-id") or clean(name)) if name not in ("", "/root") else None

    def credentials(self, key: str) -> Mapping[str, str]:
        return {"authorization": f"Bearer {key}"}

    def fresh_tool_id(self) -> str:
        return f"call_{uuid.uuid4().hex[:24]}"

    def error(self, status: int, message: str) -> bytes:
        kind, code = _KINDS.get(status, ("server_error" if status >= 500 else "invalid_request_error", None))
        error = {"message": clean(message), "type": kind, "param": None, "code": code}
        return msgspec.json.encode({"error": error})


def fault(error: Raw | None, *, statuses: Mapping[str, int] | None = None) -> Fault:
    """What an error object says. ``statuses``: those of the wire, which go before the usual ones."""
    known = {**_STATUS, **(statuses or {})}
    members = object_of(error)
    code, kind = (_word(members.get(name)) for name in ("code", "type"))
    said = rawjson.text(members.get("message")) or rawjson.text(error) or "no reason given"
    status = next((known[word] for word in (code, kind) if word in known), 0)
    if not status and code.isdigit() and _LEAST <= int(code) <= _MOST:
        status = int(code)  # some gateways of others put the status there
    if not status and _ABOUT_MEDIA.fullmatch(code or kind):
        status = 400
    return Fault(status or 502, f"{code or kind or 'server_error'}: {said}")


def usage(members: Mapping[str, Raw], given: str, taken: str) -> Usage:
    """Tokens by the names of the wire. What came from a cache is counted apart. Reasoning is output: where a
    provider counts it beside its output, the total shows it."""
    details = object_of(members.get(f"{given}_details"))
    read = rawjson.number(details.get("cached_tokens"))
    written = rawjson.number(details.get("cache_write_tokens"))
    sent, said = rawjson.number(members.get(given)), rawjson.number(members.get(taken))
    said = max(said, rawjson.number(members.get("total_tokens")) - sent)
    return Usage(max(0, sent - read - written), said, read, written)


def object_of(raw: Raw | None) -> Members:
    """The members of an object; none for anything else."""
    try:
        return rawjson.members(raw) if raw is not None else {}
    except Unreadable:
        return {}


def items_of(raw: Raw | None) -> list[Raw]:
    """The items of a list; none where there is none, or null. Raises ``Unreadable`` for anything else."""
    return rawjson.items(raw) if raw is not None and not is_null(raw) else []


def is_null(raw: Raw | None) -> bool:
    """Is there no value? Providers write null as well as nothing."""
    return raw is None or bytes(raw) == b"null"


def purpose(tools: object, form: object) -> list[bool]:
    """A harness asks side questions (a title, a summary) about the very same messages. They differ in whether
    there are tools, and whether the answer has a prescribed form."""
    return [bool(tools), bodies.inner(form, "type") not in (None, "text")]


def in_order(items: Iterable[Item], call_of: Callable[[Item], object]) -> list[Item]:
    """Results of parallel calls stand in any order: one that was injected comes after one that was not. So
    those that stand together are ordered by their calls; ``call_of`` is None for what is no result."""
    ordered: list[Item] = []
    results: list[Item] = []
    for item in [*items, None]:
        if item is not None and call_of(item) is not None:
            results.append(item)
            continue
        ordered.extend(sorted(results, key=lambda result: str(call_of(result))))
        results = []
        if item is not None:
            ordered.append(item)
    return ordered


def _word(raw: Raw | None) -> str:
    """A string or a number, as text."""
    return rawjson.text(raw) or (str(rawjson.number(raw)) if rawjson.number(raw) else "")
