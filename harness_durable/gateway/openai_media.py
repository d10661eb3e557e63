"""Media in requests of OpenAI's two wires: where they stand, which of them an error means, and a request
without some of them.

Media are told apart by the file that they carry and not by their part, since a harness that was resumed may
spell the same part differently. A screenshot that answers a call of the computer tool is left alone: no text
can stand in its place."""

from __future__ import annotations

import binascii
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Raw

from harness_durable.gateway import rawjson
from harness_durable.gateway.openai_common import Members, object_of
from harness_durable.gateway.rawjson import Unreadable, quote
from harness_durable.gateway.wire import Placed
from harness_durable.payload import Media, clean


class Shape(msgspec.Struct, frozen=True):
    """How a wire's requests hold media. ``list_field`` has what is said; ``holders`` are the members of one
    item that may have parts; ``kinds`` the types of parts with media, and what each is called; ``text`` is
    the type of a part that is a text."""

    list_field: str
    holders: tuple[str, ...]
    kinds: Mapping[str, str]
    text: str


RESPONSES = Shape(
    "input",
    ("content", "output"),
    {"input_image": "image", "input_file": "file", "input_audio": "audio", "input_video": "video"},
    "input_text",
)
CHAT = Shape(
    "messages",
    ("content",),
    {"image_url": "image", "file": "file", "input_audio": "audio", "video_url": "video"},
    "text",
)

_FILES = ("data", "file_data", "image_url", "url", "file_url", "file_id")
"""Members that hold a file or name one."""
_DATA_URL = re.compile(r"data:([^;,]*)(?:;[^;,]*)*;base64,")
_LONGEST = 60
"""Characters of a media type that are kept: it is whatever the harness wrote."""
_PATH = re.compile(r"\b(?:input|messages)\.?\[?(\d+)\]?(?:\.(?:content|output)\.?\[?(\d+)\]?((?:\.\w+)*))?")
_ELSEWHERE = re.compile(r"'\w+(?:\.\w+)*\.?\[\d+\]")
"""An error that names a place in something else."""

_Place = tuple[int, ...]
_Visit = Callable[[_Place, str, Members], Raw | None]
"""Is given the place, the kind and the members of a part with media; returns what stands there instead,
None: the part itself."""


def media(body: bytes, shape: Shape) -> tuple[Placed, ...]:
    """All of them in order, also those in results of tools. None in a body that cannot be read."""
    found: list[Placed] = []

    def visit(place: _Place, kind: str, part: Members) -> None:
        found.append(Placed(_media(kind, part), place))

    _rewritten(body, shape, visit)
    return tuple(found)


def withhold(body: bytes, notes: Mapping[str, str], shape: Shape) -> bytes:
    """The body with a text in the place of each of the media that ``notes`` has, by digest. All else stays
    byte for byte."""

    def visit(_: _Place, kind: str, part: Members) -> Raw | None:
        note = notes.get(_media(kind, part).digest)
        if note is None:
            return None
        return Raw(rawjson.encode_object({"type": quote(shape.text), "text": quote(note)}))

    return _rewritten(body, shape, visit)


def blamed(found: Sequence[Placed], said: str) -> tuple[Placed, ...] | None:
    """Those that stand where an error points. Empty: it points at something else; None: nowhere."""
    path = _PATH.search(said)
    if path is None:
        return () if _ELSEWHERE.search(said) else None
    place = tuple(int(number) for number in path.group(1, 2) if number is not None)
    return tuple(one for one in found if one.place == place)


def _media(kind: str, part: Members) -> Media:
    """The file, or what names it. It stands in the part itself or in an object of the part's."""
    holders = [part, *(object_of(value) for value in part.values() if bytes(value)[:1] == b"{")]
    named = next(((h[name], h) for name in _FILES for h in holders if rawjson.text(h.get(name))), None)
    if named is None:
        return Media(hashlib.sha256(rawjson.encode_object(part)).hexdigest(), kind)
    value, holder = rawjson.text(named[0]), named[1]
    url = _DATA_URL.match(value)
    if url is None and ("file_data" in holder or "data" in holder):
        content = _decoded(value)
        return Media(hashlib.sha256(content).hexdigest(), kind, _format(holder), len(content))
    if url is None:
        return Media(hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest(), kind)
    content = _decoded(value[url.end() :])
    return Media(hashlib.sha256(content).hexdigest(), kind, clean(url[1])[:_LONGEST], len(content))


def _format(holder: Members) -> str:
    return clean(rawjson.text(holder.get("format")))[:_LONGEST]


def _decoded(data: str) -> bytes:
    try:
        return binascii.a2b_base64(data)
    except ValueError:  # then it is told apart by what was written
        return data.encode("utf-8", "surrogatepass")


def _rewritten(body: bytes, shape: Shape, visit: _Visit) -> bytes:
    """The body with what ``visit`` says in the place of media."""
    if not _has_any(body, shape):
        return body
    try:
        request = rawjson.members(body)
        items = rawjson.items(request[shape.list_field])
        changed = [_item(item, (at,), shape, visit) for at, item in enumerate(items)]
    except (KeyError, Unreadable):
        return body
    if _same(items, changed):
        return body
    return rawjson.encode_object({**request, shape.list_field: Raw(rawjson.encode_list(changed))})


def _item(item: Raw, place: _Place, shape: Shape, visit: _Visit) -> Raw:
    """A message, or a tool's result: whatever holds parts."""
    if not _has_any(bytes(item), shape):
        return item
    members = rawjson.members(item)
    told = dict(members)
    for name in shape.holders:
        value = members.get(name)
        if value is None or bytes(value)[:1] != b"[":
            continue
        parts = rawjson.items(value)
        changed = [_part(part, (*place, at), shape, visit) for at, part in enumerate(parts)]
        if not _same(parts, changed):
            told[name] = Raw(rawjson.encode_list(changed))
    return item if told == members else Raw(rawjson.encode_object(told))


def _part(part: Raw, place: _Place, shape: Shape, visit: _Visit) -> Raw:
    if not _has_any(bytes(part), shape):
        return part
    members = rawjson.members(part)
    kind = shape.kinds.get(rawjson.text(members.get("type")))
    return part if kind is None else visit(place, kind, members) or part


def _has_any(raw: bytes, shape: Shape) -> bool:
    return any(b'"%s"' % kind.encode() in raw for kind in shape.kinds)


def _same(before: Sequence[Raw], after: Sequence[Raw]) -> bool:
    return all(one is other for one, other in zip(before, after, strict=True))
