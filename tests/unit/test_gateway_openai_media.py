"""Images and files in OpenAI's two wires: found, blamed, withheld, and all else left byte for byte."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from typing import cast

import pytest

from harness_durable.gateway import wire
from harness_durable.testing.provider import HttpError, Reply, ScriptedProvider, StreamError, say
from harness_durable.testing.provider.messages import Request
from harness_durable.testing.provider.policies import RefuseMedia
from harness_durable.testing.provider.policies.refusing import files
from tests.unit.gateway_kit import Rig, scripted
from tests.unit.openai_kit import ask, asking

BAD, GOOD, PDF = b"\x89PNG bad" * 9000, b"\x89PNG good", b"%PDF-1.7 x" * 400
DIGEST = {content: hashlib.sha256(content).hexdigest() for content in (BAD, GOOD, PDF)}
RESPONSES, CHAT = "openai-responses", "openai-chat"
BOTH = pytest.mark.parametrize("speaks", [RESPONSES, CHAT])
Part = dict[str, object]


def url(content: bytes) -> str:
    kind = "application/pdf" if content == PDF else "image/png"
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def image(speaks: str, content: bytes) -> Part:
    if content == PDF:
        held = {"filename": "a.pdf", "file_data": url(content)}
        return {"type": "file", "file": held} if speaks == CHAT else {"type": "input_file", **held}
    if speaks == CHAT:
        return {"type": "image_url", "image_url": {"url": url(content), "detail": "high"}}
    return {"type": "input_image", "image_url": url(content), "detail": "auto"}


def text(speaks: str, said: str) -> Part:
    return {"type": "text" if speaks == CHAT else "input_text", "text": said}


def refusing(
    *contents: bytes, message: str = "Invalid '{place}'. No image.", status: int = 400
) -> RefuseMedia:
    return RefuseMedia(lambda _: say("well"), tuple(DIGEST[one] for one in contents), message, status)


def sent(provider: ScriptedProvider) -> list[set[str]]:
    """The files that each request upstream held, by digest."""
    return [{digest for _, digest in files(request)} for request in provider.requests]


def withheld(rig: Rig) -> set[str]:
    return set(rig.journal.state.withheld)


def parts(request: Request, at: int = -1, holder: str = "content") -> Sequence[Part]:
    """The parts of an item of a request, as they came."""
    items = cast(list[dict[str, Sequence[Part]]], request.body.get("input") or request.body["messages"])
    return items[at][holder]


@BOTH
async def test_c046_the_image_that_the_error_names_is_withheld_and_the_request_asked_once_more(
    speaks: str,
) -> None:
    said = [text(speaks, "two"), image(speaks, GOOD), image(speaks, BAD), text(speaks, "end")]
    async with scripted(refusing(BAD), speaks=speaks) as (provider, rig):
        got = await ask(rig, asking(speaks, said))
        kinds = rig.kinds()
        assert withheld(rig) == {DIGEST[BAD]}

    assert got.status == 200
    assert sent(provider) == [{DIGEST[GOOD], DIGEST[BAD]}, {DIGEST[GOOD]}]
    assert kinds[1:3] == ["model.failed", "model.withheld"]
    held = parts(provider.requests[-1])
    assert [held[0], held[1], held[3]] == [said[0], said[1], said[3]]
    assert held[2]["type"] == text(speaks, "")["type"]
    assert str(held[2]["text"]).startswith("[Image withheld")
    assert DIGEST[BAD][:12] in str(held[2]["text"])


@pytest.mark.parametrize("kind", ["function_call", "custom_tool_call"])
async def test_an_image_in_the_result_of_a_tool_is_withheld(kind: str) -> None:
    body = asking(RESPONSES, "go")
    call = {"type": kind, "call_id": "c", "name": "view", "arguments": "{}", "input": ""}
    output = [text(RESPONSES, "seen"), image(RESPONSES, BAD)]
    body["input"] = [call, {"type": f"{kind}_output", "call_id": "c", "output": output}]
    async with scripted(refusing(BAD), speaks=RESPONSES) as (provider, rig):
        assert (await ask(rig, body)).status == 200

    [seen, note] = parts(provider.requests[-1], holder="output")
    assert seen == output[0]
    assert str(note["text"]).startswith("[Image withheld")


async def test_an_image_in_a_tool_message_is_withheld() -> None:
    body = asking(CHAT, "go")
    body["messages"] = [
        {"role": "tool", "tool_call_id": "c", "content": [image(CHAT, GOOD), image(CHAT, BAD)]}
    ]
    async with scripted(refusing(BAD), speaks=CHAT) as (provider, rig):
        assert (await ask(rig, body)).status == 200
    assert sent(provider)[1] == {DIGEST[GOOD]}


@BOTH
@pytest.mark.parametrize(
    ("status", "message"),
    [
        (413, "Request too large"),
        (400, "You uploaded an unsupported image. Use one of the formats ['png', 'jpeg']."),
        (400, "The image data you provided does not represent a valid image."),
    ],
)
async def test_c050_an_error_without_a_place_is_about_what_was_never_answered(
    speaks: str, status: int, message: str
) -> None:
    old = [image(speaks, GOOD), image(speaks, PDF)]
    policy = refusing(BAD, status=status, message=message)
    async with scripted(policy, speaks=speaks) as (provider, rig):
        assert (await ask(rig, asking(speaks, old))).status == 200
        assert (await ask(rig, asking(speaks, old, "well", [image(speaks, BAD)]))).status == 200
        assert withheld(rig) == {DIGEST[BAD]}

    assert sent(provider)[1:] == [set(DIGEST.values()), {DIGEST[GOOD], DIGEST[PDF]}]


@BOTH
@pytest.mark.parametrize(
    "message",
    [
        "No tool output found for function call call_1.",
        "Invalid 'tools[3].parameters': the image property has no type",
        "Invalid 'messages[0].tool_calls[0].id': too long",
        "Invalid 'input[0].name': an image of a name",
        "Invalid 'input[0].content[0].text'",
    ],
)
async def test_a_400_about_something_else_goes_to_the_harness_untouched(speaks: str, message: str) -> None:
    said = [text(speaks, "look"), image(speaks, BAD)]
    async with scripted(refusing(BAD, message=message), speaks=speaks) as (provider, rig):
        got = await ask(rig, asking(speaks, said))
        assert withheld(rig) == set()

    assert (got.status, got.error["message"]) == (400, message)
    assert len(provider.requests) == 1


async def test_an_image_that_is_refused_after_a_good_status_counts_as_well() -> None:
    """The Responses API reads pictures after its stream has begun."""
    fault = StreamError(2, "image_parse_error", "Invalid 'input[0].content[0].image_url'")
    given = iter([Reply(faults=(fault,))])
    async with scripted(lambda _: next(given, say("well")), speaks=RESPONSES) as (provider, rig):
        assert (await ask(rig, asking(RESPONSES, [image(RESPONSES, BAD)]))).status == 200
    assert sent(provider) == [{DIGEST[BAD]}, set()]


@BOTH
async def test_a_request_that_is_too_large_without_media_goes_to_the_harness(speaks: str) -> None:
    async with scripted(lambda _: Reply(faults=(HttpError(413),)), speaks=speaks) as (provider, rig):
        assert (await ask(rig, asking(speaks, "long"))).status == 413
    assert len(provider.requests) == 1


@BOTH
def test_what_is_not_withheld_goes_upstream_byte_for_byte(speaks: str) -> None:
    """Odd numbers, white space and escapes in the neighbours are nobody's business."""
    known = wire(speaks)
    odd = b'{"type": "text" , "text":"\\u00e9", "n":1.0e2, "big":12345678901234567890123}'
    message = b'{"role":"user","content":[%s,%s]}' % (odd, json.dumps(image(speaks, BAD)).encode())
    field = known.list_field.encode()
    body = b'{"model":"m","%s":[%s, {"role":"user" ,"content":"x"}]}' % (field, message)

    found = known.withhold(body, {DIGEST[BAD]: "note"})

    assert odd in found
    assert b'{"role":"user" ,"content":"x"}' in found
    assert found.count(b'"note"') == 1
    assert known.withhold(body, {DIGEST[GOOD]: "note"}) == body


@BOTH
@pytest.mark.parametrize("place", ["input[1].content[2].image_url", "messages.[1].content.[2].image_url.url"])
def test_a_place_is_read_as_the_providers_write_it(speaks: str, place: str) -> None:
    known = wire(speaks)
    body = asking(speaks, "a", [text(speaks, "b"), image(speaks, GOOD), image(speaks, BAD)])
    found = known.media(json.dumps(body).encode())

    assert known.blamed(found, f"Invalid '{place}'. Expected a picture.") == found[1:]
    assert known.blamed(found, "Invalid 'tools[0].name'") == ()
    assert known.blamed(found, "Too large.") is None


@pytest.mark.parametrize(
    ("speaks", "part", "kind", "size"),
    [
        (RESPONSES, {"type": "input_image", "image_url": "https://example.com/a.png"}, "image", 0),
        (RESPONSES, {"type": "input_image", "file_id": "file_1"}, "image", 0),
        (RESPONSES, {"type": "input_image"}, "image", 0),
        (RESPONSES, {"type": "input_file", "file_url": "https://example.com/a.pdf"}, "file", 0),
        (RESPONSES, {"type": "input_file", "file_data": "QUJD"}, "file", 3),
        (RESPONSES, image(RESPONSES, PDF), "file", len(PDF)),
        (CHAT, {"type": "image_url", "image_url": "data:image/png;base64,QUJD"}, "image", 3),
        (CHAT, {"type": "image_url", "image_url": {"url": "data:image/png;base64,A"}}, "image", 1),
        (CHAT, {"type": "file", "file": {"file_id": "file_1"}}, "file", 0),
        (CHAT, {"type": "input_audio", "input_audio": {"data": "QUJD", "format": "wav"}}, "audio", 3),
        (CHAT, {"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}}, "video", 0),
    ],
)
def test_media_are_told_apart_by_their_file_wherever_it_comes_from(
    speaks: str, part: Part, kind: str, size: int
) -> None:
    known = wire(speaks)
    other = {**part, "type": part["type"], "detail": "low"}
    body = json.dumps(asking(speaks, [part, other])).encode()

    one, two = (placed.media for placed in known.media(body))

    assert (one.kind, one.size) == (kind, size)
    assert (one.digest == two.digest) is (len(part) > 1), "only what has no file is told apart by its part"
    assert [placed.place for placed in known.media(body)] == [(0, 0), (0, 1)]


@BOTH
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'"input_image" "image_url"',
        b'{"input":[{"content":["input_image"]}],"messages":[{"content":["image_url"]}]}',
        b'{"input":{"input_image":1},"messages":{"image_url":1}}',
        b'{"input":"input_image","messages":"image_url"}',
    ],
)
def test_a_body_that_is_none_stays_as_it_is(speaks: str, body: bytes) -> None:
    assert wire(speaks).media(body) == ()
    assert wire(speaks).withhold(body, {"x": "note"}) == body
