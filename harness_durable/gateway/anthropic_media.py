"""Media in requests of the Messages API: where they stand, which of them an error means, and a request
without some of them.

What surprises: media are told apart by the file that they carry and not by their block, since a harness that
was resumed spells the same block differently. The place that an error names is of the request as it was sent
upstream."""

from __future__ import annotations

import binascii
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import Raw

from harness_durable.gateway import rawjson
from harness_durable.gateway.rawjson import Unreadable, quote
from harness_durable.gateway.wire import Placed
from harness_durable.payload import Media, clean

_KINDS = {"image", "document", "video", "audio"}
_TELLTALE = b'"source"'
"""Every block of media has such a member; what is without it need not be looked into."""
_LONGEST = 60
"""Characters of a media type that are kept: it is whatever the harness wrote."""
_PATH = re.compile(r"\bmessages\.(\d+)\.content\.(\d+)(?:\.tool_result\.content\.(\d+))?((?:\.\w+)*)")
_ELSEWHERE = re.compile(r"(\w+: )?\w+(\.\w+)+:")
"""An error that begins with a place."""
_NAMED = re.compile(r"\b(image|document|pdf|media|video|audio)", re.IGNORECASE)

_Members = dict[str, Raw]
_Place = tuple[int, ...]
_Visit = Callable[[_Place, _Members], Raw | None]
"""Is given a block of media and its place; returns what stands there instead, None: the block itself."""


def media(body: bytes) -> tuple[Placed, ...]:
    """All of them in order, also those in results of tools. None in a body that cannot be read."""
    found: list[Placed] = []

    def visit(place: _Place, block: _Members) -> None:
        found.append(Placed(_media(block), place))

    _rewritten(body, visit)
    return tuple(found)


def withhold(body: bytes, notes: Mapping[str, str]) -> bytes:
    """The body with a text in the place of each of the media that ``notes`` has, by digest. All else stays
    byte for byte; the cache mark stays where it was."""

    def visit(_: _Place, block: _Members) -> Raw | None:
        note = notes.get(_media(block).digest)
        if note is None:
            return None
        mark = {name: block[name] for name in ("cache_control",) if name in block}
        return Raw(rawjson.encode_object({"type": quote("text"), "text": quote(note), **mark}))

    return _rewritten(body, visit)


def blamed(found: Sequence[Placed], said: str) -> tuple[Placed, ...] | None:
    """Those that stand where an error points. Empty: it points at something else; None: nowhere.

    The API counts in more than one way: some errors about an image count the blocks as if results of tools
    had been opened. If no image is where such an error points, all of that message are meant."""
    path = _PATH.search(said)
    if path is None:
        return () if _ELSEWHERE.match(said) else None
    place = tuple(int(number) for number in path.group(1, 2, 3) if number is not None)
    kind, *further = path[4].split(".")[1:] or [""]
    if kind not in ("", "tool_result", "pdf", *_KINDS) or "cache_control" in further:
        return ()
    exact = tuple(one for one in found if one.place == place)
    if exact or not _NAMED.search(said):
        return exact
    if kind in ("", "tool_result"):
        return tuple(one for one in found if one.place[: len(place)] == place)
    return tuple(one for one in found if one.place[0] == place[0]) or None


def _media(block: _Members) -> Media:
    kind, source = clean(rawjson.text(block.get("type"))), rawjson.members(block["source"])
    data = rawjson.text(source.get("data"))
    media_type = clean(rawjson.text(source.get("media_type")))[:_LONGEST]
    match rawjson.text(source.get("type")):
        case "base64":
            content = _decoded(data)
            return Media(hashlib.sha256(content).hexdigest(), kind, media_type, len(content))
        case "text":
            content = data.encode("utf-8", "surrogatepass")
            return Media(hashlib.sha256(content).hexdigest(), kind, media_type, len(content))
        case _:
            named = rawjson.text(source.get("url")) or rawjson.text(source.get("file_id"))
            content = named.encode("utf-8", "surrogatepass") or bytes(block["source"])
            return Media(hashlib.sha256(content).hexdigest(), kind, media_type)


def _decoded(data: str) -> bytes:
    try:
        return binascii.a2b_base64(data)
    except ValueError:  # then it is told apart by what was written
        return data.encode("utf-8", "surrogatepass")


def _rewritten(body: bytes, visit: _Visit) -> bytes:
    """The body with what ``visit`` says in the place of media."""
    if _TELLTALE not in body:
        return body
    try:
        request = rawjson.members(body)
        messages = rawjson.items(request["messages"])
        changed = [_message(message, (at,), visit) for at, message in enumerate(messages)]
    except (KeyError, Unreadable):
        return body
    if _same(messages, changed):
        return body
    return rawjson.encode_object({**request, "messages": Raw(rawjson.encode_list(changed))})


def _message(message: Raw, place: _Place, visit: _Visit) -> Raw:
    """A message, or a tool's result: whatever has blocks as its content."""
    if _TELLTALE not in bytes(message):
        return message
    members = rawjson.members(message)
    content = members.get("content", Raw(b"null"))
    if bytes(content)[:1] != b"[":
        return message
    blocks = rawjson.items(content)
    changed = [_block(block, (*place, at), visit) for at, block in enumerate(blocks)]
    if _same(blocks, changed):
        return message
    return Raw(rawjson.encode_object({**members, "content": Raw(rawjson.encode_list(changed))}))


def _block(block: Raw, place: _Place, visit: _Visit) -> Raw:
    if _TELLTALE not in bytes(block):
        return block
    members = rawjson.members(block)
    kind = rawjson.text(members.get("type"))
    if kind in _KINDS and bytes(members.get("source", b""))[:1] == b"{":
        return visit(place, members) or block
    return _message(block, place, visit) if kind == "tool_result" else block


def _same(before: Sequence[Raw], after: Sequence[Raw]) -> bool:
    return all(one is other for one, other in zip(before, after, strict=True))
