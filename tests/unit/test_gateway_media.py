"""Images and documents that the provider refuses: withheld from then on, asked once more, told, kept."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import cast

import pytest

from harness_durable import codec, fold
from harness_durable import events as ev
from harness_durable.cli.story import tell
from harness_durable.gateway import wire
from harness_durable.gateway.withholding import notes
from harness_durable.journal.requests import body_of
from harness_durable.payload import Media
from harness_durable.state import Session, Withheld
from harness_durable.testing.provider import HttpError, Reply, ScriptedProvider, StreamError, Text, say
from harness_durable.testing.provider.messages import Request
from harness_durable.testing.provider.policies import RefuseMedia
from harness_durable.testing.provider.policies.refusing import files
from harness_durable.world import Record
from tests.unit.gateway_kit import MODEL, Rig, gateway, scripted
from tests.unit.memory_world import OTHER, MemoryWorld
from tests.unit.session_kit import SESSION, taken

BAD, GOOD, PDF = b"\x89PNG bad" * 9000, b"\x89PNG good", b"%PDF-1.7 x" * 400
DIGEST = {content: hashlib.sha256(content).hexdigest() for content in (BAD, GOOD, PDF)}
MARK = {"cache_control": {"type": "ephemeral"}}
Block = dict[str, object]


def image(content: bytes, **more: object) -> Block:
    kind, media_type = ("document", "application/pdf") if content == PDF else ("image", "image/png")
    source = {"type": "base64", "media_type": media_type, "data": base64.b64encode(content).decode()}
    return {"type": kind, "source": source, **more}


def text(said: str) -> Block:
    return {"type": "text", "text": said}


def result(call: str, *blocks: Block) -> Block:
    return {"type": "tool_result", "tool_use_id": call, "content": list(blocks)}


def asking(*messages: list[Block] | str, stream: bool = True) -> dict[str, object]:
    """A conversation whose messages are the user's and the model's in turn."""
    said = [{"role": ("user", "assistant")[at % 2], "content": one} for at, one in enumerate(messages)]
    return {"model": MODEL, "max_tokens": 9, "messages": said, "stream": stream}


def refusing(*contents: bytes, **more: object) -> RefuseMedia:
    digests = tuple(DIGEST[content] for content in contents)
    return RefuseMedia(lambda _: say("well"), digests, **more)  # type: ignore[arg-type]  # passed on as they are


def sent(provider: ScriptedProvider) -> list[set[str]]:
    """The files that each request upstream held, by digest."""
    return [{digest for _, digest in files(request)} for request in provider.requests]


def withheld(rig: Rig) -> set[str]:
    return set(rig.journal.state.withheld)


def last(provider: ScriptedProvider) -> list[Mapping[str, object]]:
    """The blocks of the last request's last message, as they came."""
    messages = cast(list[Mapping[str, object]], provider.requests[-1].body["messages"])
    return cast(list[Mapping[str, object]], messages[-1]["content"])


# -------------------------------------------------------------------------------- which are withheld


async def test_c046_the_image_that_the_error_names_is_withheld_and_the_request_asked_once_more() -> None:
    request = asking([text("two"), image(GOOD), image(BAD, **MARK), text("end")])
    async with scripted(refusing(BAD)) as (provider, rig):
        got = await rig.ask(request)
        state = rig.journal.state
        kept = await body_of(rig.journal.reader, state, "m1", "messages")
        kinds = rig.kinds()

    assert got.status == 200
    assert sent(provider) == [{DIGEST[GOOD], DIGEST[BAD]}, {DIGEST[GOOD]}]
    assert kinds == [
        "model.requested",
        "model.failed",
        "model.withheld",
        "model.requested",
        "model.completed",
    ]
    assert [call.status for call in state.model_calls.values()] == ["failed", "completed"]
    blocks = last(provider)
    assert [blocks[0], blocks[1], blocks[3]] == [text("two"), image(GOOD), text("end")]
    assert blocks[2]["type"] == "text"
    assert blocks[2]["cache_control"] == MARK["cache_control"], "the provider's cache goes on working"
    assert f"sha256 {DIGEST[BAD][:12]}" in str(blocks[2]["text"])
    assert "(image exceeds 5 MB maximum" in str(blocks[2]["text"]), "without the place, which is gone"
    assert json.loads(kept) == request, "the original is in the log"


@pytest.mark.parametrize(
    "message",
    ["{place}: image exceeds 5 MB maximum", "messages.2.content.3.image.source.base64.data: 8000 pixels"],
    ids=["exact", "counted as if the results had been opened"],
)
async def test_an_image_in_the_result_of_a_tool_is_withheld(message: str) -> None:
    called: list[Block] = [{"type": "tool_use", "id": "t", "name": "Read", "input": {}}]
    request = asking([image(GOOD)], called, [result("t", text("seen"), image(BAD)), text("so?")])
    async with scripted(refusing(BAD, message=message)) as (provider, rig):
        assert (await rig.ask(request)).status == 200
        assert withheld(rig) == {DIGEST[BAD]}

    answer = last(provider)
    inner = cast(list[Block], answer[0]["content"])
    assert inner[0] == text("seen")
    assert str(inner[1]["text"]).startswith("[Image withheld")
    assert (answer[0]["tool_use_id"], answer[1]) == ("t", text("so?"))


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (413, "Request exceeds the maximum size"),
        (400, "Could not process image"),
        (400, "too many images and documents: 104 + 1 > 100"),
        (400, "<400> InternalError: Range of input length should be [1, 98304]"),
    ],
)
async def test_c050_an_error_without_a_place_is_about_what_was_never_answered(
    status: int, message: str
) -> None:
    async with scripted(refusing(BAD, status=status, message=message)) as (provider, rig):
        first = asking([image(GOOD), image(PDF)])
        assert (await rig.ask(first)).status == 200
        second = asking([image(GOOD), image(PDF)], "well", [image(BAD), text("and this?")])
        assert (await rig.ask(second)).status == 200
        assert withheld(rig) == {DIGEST[BAD]}

    assert sent(provider)[1:] == [set(DIGEST.values()), {DIGEST[GOOD], DIGEST[PDF]}]


async def test_without_a_place_and_without_anything_new_it_is_the_largest() -> None:
    refuse = False

    def policy(request: Request) -> Reply:
        return refusing(BAD, status=413, message="too large")(request) if refuse else say("well")

    async with scripted(policy) as (_, rig):
        await rig.ask(asking([image(GOOD), image(BAD), image(PDF)]))
        refuse = True
        got = await rig.ask(asking([image(GOOD), image(BAD), image(PDF)], "well", "and now?"))
        assert got.status == 200
        assert withheld(rig) == {DIGEST[BAD]}


async def test_what_only_a_subagent_was_answered_proves_nothing_for_the_main_loop() -> None:
    agent = {"x-claude-code-agent-id": "sub"}
    refused = iter([False, True])

    def policy(request: Request) -> Reply:
        return refusing(BAD, status=413, message="too large")(request) if next(refused, True) else say("well")

    async with scripted(policy) as (_, rig):
        await rig.ask(asking([image(GOOD), image(BAD)]), headers=agent)
        assert (await rig.ask(asking([image(GOOD), image(BAD), text("main")]))).status == 200
        assert withheld(rig) == {DIGEST[GOOD], DIGEST[BAD]}, "both are new to this conversation"


async def test_an_error_at_the_beginning_of_a_stream_counts_as_well() -> None:
    fault = StreamError(0, "invalid_request_error", "messages.0.content.0.image.source: no image")
    async with scripted(once(fault)) as (provider, rig):
        assert (await rig.ask(asking([image(BAD)]))).status == 200
    assert sent(provider) == [{DIGEST[BAD]}, set()]


async def test_an_error_within_an_answer_does_not() -> None:
    fault = StreamError(4, "invalid_request_error", "messages.0.content.0.image.source: no image")
    async with scripted(once(fault)) as (provider, rig):
        assert (await rig.ask(asking([image(BAD)]))).status == 400
        assert withheld(rig) == set()
    assert len(provider.requests) == 1


def once(fault: StreamError) -> Callable[[Request], Reply]:
    """Faulty at first, then well."""
    given = iter([Reply((Text("first"),), faults=(fault,))])
    return lambda _: next(given, say("well"))


@pytest.mark.parametrize(
    "message",
    [
        "prompt is too long: 207368 tokens > 200000 maximum",
        "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1",
        "messages.0.content.0.text: text content blocks must be non-empty",
        "messages.0.content.1.image.cache_control.ttl: a ttl of 1h must not come after one of 5m",
        "messages.0.content.0.text.citations: citations need a document",
        "tools.3.custom.input_schema: the media type is no JSON schema",
        "max_tokens: 64000 > 32000",
    ],
)
async def test_a_400_about_something_else_goes_to_the_harness_untouched(message: str) -> None:
    async with scripted(refusing(BAD, message=message)) as (provider, rig):
        got = await rig.ask(asking([text("look"), image(BAD)]))
        kinds = rig.kinds()
        assert withheld(rig) == set()

    assert (got.status, got.error["message"]) == (400, message)
    assert kinds == ["model.requested", "model.failed"]
    assert len(provider.requests) == 1


@pytest.mark.parametrize("status", [401, 429, 500, 529])
async def test_only_a_refusal_of_the_request_counts(status: int) -> None:
    async with scripted(refusing(BAD, status=status)) as (provider, rig):
        assert (await rig.ask(asking([image(BAD)]))).status == status
    assert len(provider.requests) == 1


async def test_a_request_that_is_too_large_without_media_goes_to_the_harness() -> None:
    async with scripted(lambda _: Reply(faults=(HttpError(413),))) as (provider, rig):
        assert (await rig.ask(asking("long"))).status == 413
    assert len(provider.requests) == 1


# ---------------------------------------------------------------------------------- asked once more


async def test_it_is_asked_once_more_and_no_oftener() -> None:
    """The second refusal goes to the harness as it is; its next request finds both gone."""
    request = asking([image(BAD), image(PDF)])
    async with scripted(refusing()) as (provider, rig):
        got = await rig.ask(request)
        kinds = rig.kinds()
        again = await rig.ask(request)

    assert (got.status, got.error["type"]) == (400, "invalid_request_error")
    assert "messages.0.content.1.document" in got.error["message"]
    assert kinds == ["model.requested", "model.failed", "model.withheld", "model.requested", "model.failed"]
    assert again.status == 200
    assert sent(provider) == [{DIGEST[BAD], DIGEST[PDF]}, {DIGEST[PDF]}, {DIGEST[PDF]}, set()]


async def test_a_call_that_was_settled_meanwhile_is_not_asked_again() -> None:
    """Nothing is paid for a turn that is over."""
    rigs: list[Rig] = []

    def policy(request: Request) -> Reply:
        rigs[0].world.between = stopped
        return refusing(BAD)(request)

    async def stopped() -> None:
        """Another writer's record: the turn was settled while the provider answered."""
        await add(rigs[0].world, ev.ModelFailed("m1", None, "the turn was settled first"))

    async with scripted(policy) as (provider, rig):
        rigs.append(rig)
        assert (await rig.ask(asking([image(BAD)]))).status == 400
        assert withheld(rig) == set()
    assert len(provider.requests) == 1


async def add(world: MemoryWorld, event: ev.AnyEvent) -> None:
    """One record at the end of the log, by nobody who drives."""
    record = Record("other", codec.kind_of(event), 1, codec.encode(event))
    head = len(world.stored[SESSION].records)
    await world.append(SESSION, expected_head=head, epoch=0, records=[record])


# -------------------------------------------------------------------------------- from then on


async def test_the_next_turn_passes_at_once_also_where_the_block_is_spelled_anew() -> None:
    async with scripted(refusing(BAD)) as (provider, rig):
        await rig.ask(asking([image(BAD)]))
        spelled = json.dumps(asking([image(BAD, **MARK)], "well", "next"), indent=1).encode()
        assert (await rig.ask(spelled)).status == 200
        assert rig.kinds()[-2:] == ["model.requested", "model.completed"]
    assert sent(provider) == [{DIGEST[BAD]}, set(), set()]


async def test_another_worker_withholds_them_from_the_log_and_the_answer_is_found_by_what_was_sent() -> None:
    request = asking([image(BAD)])
    async with ScriptedProvider(refusing(BAD), check=False) as provider:
        async with gateway(provider.url) as rig:
            first = await rig.ask(request)
            world = rig.world
        journal = await taken(world, OTHER)
        async with gateway(provider.url, world=world, journal=journal, life="L2") as rig:
            assert (await rig.ask(request)).body == first.body, "replayed; nothing is asked"
            assert (await rig.ask(asking([image(BAD)], "well", "next"))).status == 200
    assert sent(provider) == [{DIGEST[BAD]}, set(), set()]


async def test_a_token_count_is_without_them_as_well() -> None:
    async with scripted(refusing(BAD)) as (_, rig):
        await rig.ask(asking([image(BAD)]))
        got = await rig.ask(asking([image(BAD)]), path="/v1/messages/count_tokens")
        whole = len(json.dumps(asking([image(BAD)])))
    assert json.loads(got.body)["input_tokens"] < whole // 40


async def test_what_is_not_withheld_goes_upstream_byte_for_byte() -> None:
    """Odd numbers, white space and escapes in the neighbours are nobody's business."""
    odd = b'{"type": "text" , "text":"\\u00e9", "n":1.0e2, "big":12345678901234567890123}'
    message = b'{"role":"user","content":[%s,%s]}' % (odd, json.dumps(image(BAD)).encode())
    body = b'{"model":"m","messages":[%s, {"role":"user" ,"content":"x"}]}' % message
    found = wire("anthropic").withhold(body, {DIGEST[BAD]: "note"})
    assert odd in found
    assert b'{"role":"user" ,"content":"x"}' in found
    assert found.count(b'{"type":"text","text":"note"}') == 1
    assert wire("anthropic").withhold(body, {DIGEST[GOOD]: "note"}) == body


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'"source"',
        b'{"messages":[{"content":[{"type":"image","source":"here"}]}]}',
        b'{"messages":[{"content":["source",{"type":"image","source":{}}]}]}',
        b'{"messages":{"source":1}}',
    ],
)
def test_a_body_that_is_none_stays_as_it_is(body: bytes) -> None:
    assert wire("anthropic").media(body) == ()
    assert wire("anthropic").withhold(body, {"x": "note"}) == body


def test_media_are_told_apart_by_their_file_wherever_it_comes_from() -> None:
    sources: list[Block] = [
        {"type": "url", "url": "https://example.com/a.png"},
        {"type": "url", "url": "https://example.com/b.png"},
        {"type": "file", "file_id": "file_1"},
        {"type": "text", "media_type": "text/plain", "data": "a text"},
        {"type": "content", "content": [text("a")]},
        {"type": "base64", "media_type": "image/png", "data": "no base64!"},
    ]
    body = json.dumps(asking([{"type": "image", "source": source} for source in sources])).encode()
    found = [placed.media for placed in wire("anthropic").media(body)]
    assert len({media.digest for media in found}) == len(sources)
    assert [media.size > 0 for media in found] == [False, False, False, True, False, True]


# ------------------------------------------------------------------------------------------ told


async def test_a_person_is_told_what_was_withheld_why_and_where_it_is() -> None:
    async with scripted(refusing(BAD, message="{place}: too \x1b[31mlarge")) as (_, rig):
        await rig.ask(asking([image(BAD)]))
        entries = [entry async for entry in rig.journal.reader.entries()]
        state = await rig.journal.reader.load()

    [(entry, event)] = [(e, e.event) for e in entries if isinstance(e.event, ev.ModelWithheld)]
    assert codec.decode(codec.encode(event), "here") == event
    line = tell(state, entry)
    assert line is not None
    assert line.tone == "warn"
    assert state.model_calls["m1"].reason.endswith("it is asked once more, without what is withheld")
    assert f"image/png, 72 kB, sha256 {DIGEST[BAD][:12]}…" in line.text
    assert "refused it" in line.text
    assert "m1" in line.text
    assert "\x1b" not in line.text
    loaded = fold.load(fold.dump(state))
    assert loaded is not None
    assert loaded.withheld == {DIGEST[BAD]: Withheld(event.media[0], "m1", event.reason)}


def test_the_note_has_one_line_of_the_reason_and_never_more() -> None:
    media = Media("ab" * 32, "document", "application/pdf", 12)
    state = Session(withheld={media.digest: Withheld(media, "m1", "a.b.0: too\n\nlarge " + "x" * 900)})
    [note] = notes(state).values()
    assert note.startswith("[Document withheld by harness-durable: the provider refused it (too large x")
    assert "application/pdf, 12 bytes, sha256 abababababab…" in note
    assert len(note) < 500


def test_nothing_is_withheld_in_a_session_where_nothing_was_refused() -> None:
    assert notes(Session()) == {}
