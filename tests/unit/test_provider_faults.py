"""Everything that can go wrong on the way, on order or by mood; and that the ledger tells the truth of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import httpx
import pytest

from harness_durable import clock
from harness_durable.errors import UnknownName
from harness_durable.testing.provider import (
    Cut,
    Hang,
    HttpError,
    Mood,
    Reply,
    ScriptedProvider,
    StreamError,
    Style,
    Text,
    ToolUse,
    say,
)
from harness_durable.testing.provider.encode import to_json
from harness_durable.testing.provider.mood import MOODS, named
from harness_durable.testing.provider.reply import Fault
from tests.unit.provider_kit import ask, body, hear, sse

BLOCKS = (Text("first"), ToolUse("Bash", {"command": "make"}, id="toolu_1"))


def faulty(*faults: Fault, style: Style | None = None) -> Reply:
    return Reply(BLOCKS, style=style or Style(), faults=faults)


def kinds(provider: ScriptedProvider) -> list[str]:
    return [line.kind for line in provider.ledger.tally().lines]


async def received(provider: ScriptedProvider, *, stream: bool = True) -> tuple[bytes, str]:
    """What a bare socket gets until the end, and ``reset`` or ``closed``."""
    sent = to_json(body(stream=stream)).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", provider.port)
    head = f"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: {len(sent)}\r\n\r\n"
    writer.write(head.encode() + sent)
    got = b""
    try:
        while data := await reader.read(65536):
            got += data
    except ConnectionResetError:
        return got, "reset"
    finally:
        writer.transport.abort()
    return got, "closed"


@pytest.mark.parametrize("style", [Style(), Style(gzip=True, split_bytes=4)])
@pytest.mark.parametrize("event", [0, 1, 3, 6])
async def test_a_cut_stream_ends_before_its_event_and_without_the_last_chunk(
    event: int, style: Style
) -> None:
    got: list[bytes] = []
    async with ScriptedProvider(lambda _: faulty(Cut(event), style=style)) as provider:
        async with httpx.AsyncClient(base_url=provider.url) as http:
            with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):
                async with http.stream("POST", "/v1/messages", json=body()) as response:
                    got = [piece async for piece in response.aiter_bytes()]
                    raise AssertionError(f"the stream ended well: {got}")
        assert kinds(provider) == ["requested", "faulted"]
        assert f"cut at event {event}" in provider.ledger.tally().lines[-1].note
        raw, how = await received(provider)
    assert how == "closed"
    if not style.split_bytes:
        assert raw.count(b"\ndata: ") == event
    assert not raw.endswith(b"0\r\n\r\n")


async def test_a_cut_may_fall_inside_an_event() -> None:
    async with ScriptedProvider(lambda _: faulty(Cut(1, after_bytes=30))) as provider:
        raw, _ = await received(provider)
    assert raw.count(b"\ndata: ") == 1
    assert raw.endswith(b"event: content_block_start\ndat\r\n")


async def test_a_reset_is_a_reset() -> None:
    async with ScriptedProvider(lambda _: faulty(Hang(2, 0.01), Cut(2, "reset"))) as provider:
        _, how = await received(provider)
        assert kinds(provider) == ["requested", "faulted"]
    assert how == "reset"


async def test_a_stream_may_end_in_good_order_without_its_last_events() -> None:
    async with ScriptedProvider(lambda _: faulty(Cut(3, "end"))) as provider:
        heard = hear((await ask(provider)).content)
        assert kinds(provider) == ["requested", "faulted"]
    assert len(heard.events) == 3
    assert not heard.finished


async def test_an_event_past_the_end_means_the_last_one() -> None:
    async with ScriptedProvider(lambda _: faulty(Cut(999, "end"))) as provider:
        heard = hear((await ask(provider)).content)
    assert heard.events[-1] == "message_delta"
    assert not heard.finished


async def test_an_error_event_comes_after_status_200_and_ends_the_stream() -> None:
    fault = StreamError(2, "api_error", "inner trouble")
    async with ScriptedProvider(lambda _: faulty(fault)) as provider:
        response = await ask(provider)
        assert kinds(provider) == ["requested", "faulted"]
    assert response.status_code == 200
    events = sse(response.content)
    assert len(events) == 3
    error = {"type": "api_error", "message": "inner trouble"}
    assert events[-1] == ("error", {"type": "error", "error": error})


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (529, "overloaded_error"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_an_error_status_has_its_type_and_headers(status: int, kind: str, stream: bool) -> None:
    fault = HttpError(status, headers={"retry-after": "7", "x-should-retry": "false"})
    async with ScriptedProvider(lambda _: faulty(fault)) as provider:
        response = await ask(provider, body(stream=stream))
        assert kinds(provider) == ["requested", "faulted"]
        assert provider.ledger.tally().lines[-1].note == f"status {status}"
    assert response.status_code == status
    assert response.json()["error"]["type"] == kind
    assert response.headers["retry-after"] == "7"
    assert response.headers["x-should-retry"] == "false"


async def test_an_error_status_can_have_its_own_words() -> None:
    fault = HttpError(418, "teapot", "short and stout")
    async with ScriptedProvider(lambda _: faulty(fault)) as provider:
        error = (await ask(provider)).json()["error"]
    assert error == {"type": "teapot", "message": "short and stout"}


class Sleeps:
    """A clock that notes how long was slept, and takes no time."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await anyio.lowlevel.checkpoint()


async def test_a_hang_lasts_as_long_as_told_and_the_stream_goes_on() -> None:
    sleeps = Sleeps()
    with clock.use(sleeps):
        async with ScriptedProvider(lambda _: faulty(Hang(2, 1000.0))) as provider:
            assert hear((await ask(provider)).content).finished
            assert (await ask(provider, body(stream=False))).status_code == 200
            assert kinds(provider) == ["requested", "delivered"] * 2
    assert sleeps.slept == [1000.0, 1000.0]


async def test_delays_come_before_the_start_and_after_each_event() -> None:
    sleeps = Sleeps()
    reply = Reply((Text("x"),), style=Style(start_delay=1, event_delay=2), start_delay=30)
    with clock.use(sleeps):
        async with ScriptedProvider(lambda _: reply) as provider:
            heard = hear((await ask(provider)).content)
    assert sleeps.slept == [30, *[2] * len(heard.events)]


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_without_streaming_a_cut_leaves_half_of_the_json(how: str) -> None:
    cut = Cut(0, "reset" if how == "reset" else "close")
    async with ScriptedProvider(lambda _: faulty(cut)) as provider:
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
            await ask(provider, body(stream=False))
        assert kinds(provider) == ["requested", "faulted"]


async def test_without_streaming_a_stream_error_is_a_status() -> None:
    async with ScriptedProvider(lambda _: faulty(StreamError(3))) as provider:
        response = await ask(provider, body(stream=False))
    assert (response.status_code, response.json()["error"]["type"]) == (529, "overloaded_error")


async def test_a_policy_that_fails_is_told_in_the_answer_and_the_ledger() -> None:
    def broken(_: object) -> Reply:
        raise KeyError("toolu_9")

    async with ScriptedProvider(broken) as provider:
        response = await ask(provider)
        assert kinds(provider) == ["requested", "refused"]
        assert "toolu_9" in provider.ledger.tally().lines[-1].note
    assert response.status_code == 400
    assert "KeyError" in response.json()["error"]["message"]


@pytest.fixture
async def hanging() -> AsyncIterator[ScriptedProvider]:
    """A provider that is silent after its first event. (Fixtures end in another task.)"""
    async with ScriptedProvider(lambda _: faulty(Hang(1, 3600))) as provider:
        yield provider


@asynccontextmanager
async def streaming(provider: ScriptedProvider) -> AsyncGenerator[httpx.Response, None]:
    async with (
        httpx.AsyncClient(base_url=provider.url) as http,
        http.stream("POST", "/v1/messages", json=body()) as response,
    ):
        yield response


async def until(provider: ScriptedProvider, kind: str) -> None:
    with anyio.fail_after(20):
        while kind not in kinds(provider):  # noqa: ASYNC110 - a ledger has no event to wait for
            await anyio.sleep(0.002)


async def test_a_client_that_hangs_up_is_noticed_during_silence(hanging: ScriptedProvider) -> None:
    async with streaming(hanging) as response:
        await anext(response.aiter_bytes())
    await until(hanging, "client_gone")
    assert kinds(hanging) == ["requested", "client_gone"]


async def test_a_client_that_stops_reading_and_dies_is_noticed() -> None:
    huge = Reply((Text("x" * 30_000_000),))
    async with ScriptedProvider(lambda _: huge) as provider:
        reader, writer = await asyncio.open_connection("127.0.0.1", provider.port)
        sent = to_json(body()).encode()
        head = f"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: {len(sent)}\r\n\r\n"
        writer.write(head.encode() + sent)
        await reader.readexactly(20)
        writer.transport.abort()
        await until(provider, "client_gone")
        assert kinds(provider) == ["requested", "client_gone"]


async def test_closing_the_provider_ends_what_is_in_flight(hanging: ScriptedProvider) -> None:
    async with streaming(hanging) as response:
        pieces = response.aiter_bytes()
        await anext(pieces)
        await hanging.__aexit__(None, None, None)
        with pytest.raises(httpx.RemoteProtocolError):
            await anext(pieces)
    assert kinds(hanging) == ["requested", "abandoned"]


async def test_a_rude_mood_still_lets_every_conversation_end() -> None:
    mood = Mood(seed=7, mess=0.5, faults=0.9, most_faults=3)
    outcomes: list[str] = []
    async with ScriptedProvider(lambda _: Reply(BLOCKS), mood=mood) as provider:
        for conversation in range(6):
            for _ in range(mood.most_faults + 1):
                outcomes.append(await _outcome(provider, f"hi {conversation}"))
                if outcomes[-1] == "ok":
                    break
            assert outcomes[-1] == "ok"
    assert len(set(outcomes)) > 3, "a rude mood should have several ways to be rude"


async def _outcome(provider: ScriptedProvider, prompt: str) -> str:
    try:
        response = await ask(provider, body(prompt))
    except httpx.HTTPError as error:
        return type(error).__name__
    if response.status_code != 200:
        return str(response.status_code)
    heard = hear(response.content)
    return "ok" if heard.finished else heard.error or "no end"


def test_a_mood_is_the_same_for_the_same_seed_key_and_try() -> None:
    one, same, other = Mood(1, 0.5, 0.5), Mood(1, 0.5, 0.5), Mood(2, 0.5, 0.5)
    tries = [(key, before) for key in "abcdef" for before in (0, 1)]
    assert [one.style(*t) for t in tries] == [same.style(*t) for t in tries]
    assert [one.fault(*t) for t in tries] == [same.fault(*t) for t in tries]
    assert [one.style(*t) for t in tries] != [other.style(*t) for t in tries]
    assert len({one.style(*t) for t in tries}) == len(tries)


def test_a_calm_mood_does_nothing() -> None:
    assert all(named("calm", 3).fault(key, 0) == () for key in "abc")
    assert named("calm", 3).style("a", 0) == Style(seed=named("calm", 3).style("a", 0).seed)


def test_moods_are_found_by_name() -> None:
    assert named("rude", 5).seed == 5
    assert named("rude", 5).faults == MOODS["rude"].faults
    with pytest.raises(UnknownName, match="calm"):
        named("jolly", 0)


async def test_a_reply_that_says_its_own_faults_is_not_touched_by_the_mood() -> None:
    mood = Mood(faults=1.0)
    quiet = Reply((Text("x"),), faults=())
    async with ScriptedProvider(lambda _: quiet, mood=mood) as provider:
        assert hear((await ask(provider)).content).finished
    async with ScriptedProvider(lambda _: say("x"), mood=mood) as provider:
        assert await _outcome(provider, "hi") != "ok"
