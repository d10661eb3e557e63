"""What goes wrong at the provider, in the log, and at the harness; and that no secret gets out on the way."""

from __future__ import annotations

import json
import logging
import socket
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import ByteStream

from harness_durable.errors import (
    HarnessDurableError,
    KeeperGone,
    StaleEpoch,
    StorageUnavailable,
    WriterFenced,
)
from harness_durable.gateway import connection
from harness_durable.testing.provider import (
    Cut,
    HttpError,
    Reply,
    StreamError,
    Style,
    Text,
    ToolUse,
    say,
)
from harness_durable.testing.provider.reply import Fault
from tests.unit.gateway_kit import KEY, TOKEN, HeldRequest, Rig, body, gateway, http, scripted, until
from tests.unit.memory_world import OTHER
from tests.unit.session_kit import taken

BLOCKS = (Text("first"), ToolUse("Bash", {"command": "make"}, id="toolu_1"))


def once(*faults: Fault, style: Style | None = None) -> Callable[[object], Reply]:
    """Faulty at first, then well."""
    given = iter([Reply(BLOCKS, style=style, faults=faults)])
    return lambda _: next(given, Reply(BLOCKS))


def expected(got: bytes) -> int:
    """Bytes of the whole request whose head is here."""
    head = got.partition(b"\r\n\r\n")[0].lower()
    length = head.partition(b"content-length: ")[2].partition(b"\r")[0]
    return len(head) + 4 + int(length or 0)


@asynccontextmanager
async def answering(raw: bytes | Callable[[bytes], bytes]) -> AsyncGenerator[str]:
    """A server that gives these bytes to every request and closes; its URL."""

    async def answer(stream: ByteStream) -> None:
        async with stream:
            got = b""
            while b"\r\n\r\n" not in got or len(got) < expected(got):
                got += await stream.receive()
            await stream.send(raw if isinstance(raw, bytes) else raw(got))

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, answer)
            yield f"http://127.0.0.1:{port}"
            tasks.cancel_scope.cancel()


def response(content: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(content)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


MESSAGE = json.dumps(
    {"type": "message", "id": "m", "content": [{"type": "text", "text": "hi"}], "usage": {}}
).encode()

# --------------------------------------------------------------------------------------- provider


@pytest.mark.parametrize("status", [400, 401, 413, 429, 500, 529])
async def test_an_error_status_goes_to_the_harness_as_it_is(status: int) -> None:
    """C143: status and Retry-After are the provider's, and only the harness tries again."""
    fault = HttpError(status, message="no", headers={"retry-after": "7", "x-should-retry": "false"})
    async with scripted(once(fault)) as (provider, rig):
        got = await rig.ask(body())
        call = rig.journal.state.model_calls["m1"]

    assert got.status == status
    assert got.error["message"] == "no"
    assert (got.headers["retry-after"], got.headers["x-should-retry"]) == ("7", "false")
    assert "request-id" in got.headers
    assert (call.status, call.http_status) == ("failed", status)
    assert str(status) in call.reason
    assert len(provider.requests) == 1, "trying again is the harness's to do"


async def test_c145_a_limit_that_is_used_up_comes_with_a_wait_that_no_harness_waits_for() -> None:
    fault = HttpError(429, kind="insufficient_quota", headers={"retry-after": "1"})
    async with scripted(once(fault)) as (_, rig):
        got = await rig.ask(body())

    assert (got.status, got.headers["retry-after"]) == (429, "3600")
    assert "top it up" in rig.journal.state.model_calls["m1"].reason


@pytest.mark.parametrize("style", [Style(), Style(gzip=True)])
@pytest.mark.parametrize("how", ["close", "reset", "end"])
@pytest.mark.parametrize("event", [0, 3, 6, 99])
async def test_a_stream_that_was_cut_is_an_error_status_and_never_a_part_of_a_body(
    event: int, how: str, style: Style
) -> None:
    """C146: nothing was sent before, so an honest status can be."""
    fault = Cut(event, "end" if how == "end" else "reset" if how == "reset" else "close", 9)
    async with scripted(once(fault, style=style)) as (_, rig):
        cut = await rig.ask(body())
        kinds = rig.kinds()
        again = await rig.ask(body())

    assert cut.status == 502
    assert b"toolu_1" not in cut.raw
    assert kinds == ["model.requested", "model.failed"]
    assert again.status == 200
    assert rig.kinds()[2:] == ["model.requested", "model.completed", "tool.requested"]


async def test_a_json_answer_that_was_cut_is_an_error_status() -> None:
    async with scripted(once(Cut(0, "close"))) as (_, rig):
        got = await rig.ask(body(stream=False))

    assert got.status == 502
    call = rig.journal.state.model_calls["m1"]
    assert call.status == "lost"
    assert call.reason.startswith(
        "the connection to 127.0.0.1 broke before the whole answer was there; the harness tries again by "
        "itself (RemoteProtocolError: "
    )


@pytest.mark.parametrize(("kind", "status"), [("overloaded_error", 529), ("api_error", 502)])
async def test_an_error_within_a_good_status_becomes_an_error_status(kind: str, status: int) -> None:
    """C146: nothing was sent before, so an honest status can be."""
    async with scripted(once(StreamError(5, kind, "too busy"))) as (_, rig):
        got = await rig.ask(body())

    assert got.status == status
    assert "too busy" in got.error["message"]
    assert rig.kinds() == ["model.requested", "model.failed"]


async def test_a_provider_that_cannot_be_reached_is_a_502_and_an_honest_reason() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        async with gateway(f"http://127.0.0.1:{unused.getsockname()[1]}") as rig:
            got = await rig.ask(body())
            passed = await rig.ask(b"", path="/v1/models", method="GET")

    assert got.status == passed.status == 502
    assert got.error["type"] == "api_error"
    reason = rig.journal.state.model_calls["m1"].reason
    assert reason.startswith("127.0.0.1 cannot be reached; the harness tries again by itself (ConnectError: ")


async def test_a_redirect_is_not_followed_and_not_passed_on() -> None:
    redirect = response(b"", "location: http://elsewhere/", status="307 Go")
    async with answering(redirect) as url, gateway(url) as rig:
        got = await rig.ask(body())

    assert got.status == 502
    assert "location" not in got.headers


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
async def test_a_packed_answer_is_unpacked_and_not_called_packed(path: str) -> None:
    """C148: no header about a body that was changed."""
    packed = response(
        zlib.compress(MESSAGE, wbits=31), "content-encoding: gzip", "content-type: application/json"
    )
    async with answering(packed) as url, gateway(url) as rig:
        got = await rig.ask(body(stream=False), path=path)

    assert got.body == MESSAGE
    assert "content-encoding" not in got.headers
    assert got.headers["content-length"] == str(len(MESSAGE))


async def test_a_deep_input_that_was_not_streamed_is_recorded_whole() -> None:
    """C119: 10,000 levels."""
    written = b'{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}"
    call = b'{"type":"tool_use","id":"toolu_1","name":"Bash","input":' + written + b"}"
    deep = b'{"type":"message","id":"m","usage":{},"content":[' + call + b"]}"
    async with answering(response(deep, "content-type: application/json")) as url, gateway(url) as rig:
        got = await rig.ask(body(stream=False))
        state, reader = rig.journal.state, rig.journal.reader
        recorded = await reader.content(state.tool_calls["toolu_1"].input)

    assert (got.status, got.body) == (200, deep)
    assert state.model_calls["m1"].status == "completed"
    assert recorded == written


async def test_an_answer_that_we_cannot_unpack_is_an_error_that_says_so() -> None:
    """C148: a packing that nobody asked for."""
    async with answering(response(b"\x8b\x00", "content-encoding: br")) as url, gateway(url) as rig:
        got = await rig.ask(body())

    assert got.status == 502
    assert "br" in got.error["message"]


async def test_we_ask_for_no_packing_and_pass_the_harness_headers_on() -> None:
    """C148: so that bytes need not be changed."""
    seen: list[bytes] = []

    def answer(got: bytes) -> bytes:
        seen.append(got.lower())
        return response(MESSAGE, "set-cookie: a=b", "connection: close", "x-more: yes")

    headers = {"anthropic-beta": "b-1", "accept-encoding": "gzip, br", "cookie": "c=d", "x-latin": "\xe9"}
    async with answering(answer) as url, gateway(url, headers={"X-Extra": "7"}) as rig:
        got = await rig.ask(body(stream=False), headers=headers)

    assert b"\r\naccept-encoding: identity\r\n" in seen[0]
    assert b"\r\nanthropic-beta: b-1\r\n" in seen[0]
    assert b"\r\nx-extra: 7\r\n" in seen[0]
    assert b"cookie" not in seen[0]
    assert TOKEN.encode() not in seen[0]
    assert "set-cookie" not in got.headers
    assert got.headers["x-more"] == "yes"


async def test_a_packed_request_is_passed_on_untouched() -> None:
    packed = zlib.compress(json.dumps(body("\\ud83d")).encode(), wbits=31) + rb"\ud83d"
    seen: list[bytes] = []

    def answer(got: bytes) -> bytes:
        seen.append(got)
        return response(MESSAGE)

    async with answering(answer) as url, gateway(url) as rig:
        got = await rig.ask(packed, headers={"content-encoding": "gzip"})

    assert got.status == 200
    assert packed in seen[0]
    assert b"content-encoding: gzip" in seen[0].lower()


async def test_a_large_stream_leaves_the_event_loop_free() -> None:
    async with scripted(lambda _: Reply((Text("x" * 5_000_000),), style=Style(split_text=400))) as (_, rig):
        turns = status = size = 0
        done = anyio.Event()

        async def tick() -> None:
            nonlocal turns
            while not done.is_set():
                turns += 1
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tick)
            got = await rig.ask(body())
            status, size = got.status, len(got.body)
            done.set()

    assert status == 200
    assert size > 5_000_000
    assert turns > 100, "others had their turns while it was parsed"


# ------------------------------------------------------------------------------------------ secrets


async def test_the_key_is_nowhere_but_upstream(caplog: pytest.LogCaptureFixture) -> None:
    def echo(got: bytes) -> bytes:
        found = f"x-echo: {KEY}"
        return response(f"your key {KEY} is bad, {TOKEN}".encode(), found, status="401 No")

    caplog.set_level(logging.DEBUG)
    seen: list[bytes] = []
    async with answering(echo) as url, gateway(url) as rig:
        seen += [(await rig.ask(body())).raw, (await rig.ask(b"", path="/v1/models", method="GET")).raw]
        log = rig.log()
    async with answering(b"nonsense " + KEY.encode()) as url, gateway(url) as rig:
        seen.append((await rig.ask(body())).raw)
        log += rig.log()

    assert [b"401" in seen[0], b"401" in seen[1], b"502" in seen[2]] == [True] * 3
    for place in [*seen, log, caplog.text.encode()]:
        assert KEY.encode() not in place


async def test_the_token_is_not_in_the_log() -> None:
    async with scripted(lambda _: say("hi")) as (_, rig):
        await rig.ask(body(), path=f"/{TOKEN}/v1/messages?beta=true")

    assert TOKEN.encode() not in rig.log()


# -------------------------------------------------------------------------------------- log and keeper


async def test_a_gateway_that_was_superseded_answers_nothing_and_stops() -> None:
    async with scripted(lambda _: Reply(BLOCKS, start_delay=0.1), ready=False) as (_, rig):
        waiting = await rig.start(body("first"))
        await until(lambda: "model.completed" in rig.kinds())
        await taken(rig.world, OTHER)
        sent = await rig.start(body("second"))
        await rig.ended.wait()
        got = [await each.response() for each in (waiting, sent)]

    assert isinstance(rig.failure, WriterFenced)
    assert [each.raw for each in got] == [b"", b""]
    assert not waiting.request.finished
    assert not sent.request.finished


async def test_a_gateway_that_was_superseded_while_the_model_answered_forwards_nothing() -> None:
    async with scripted(lambda _: Reply(BLOCKS, start_delay=0.2)) as (provider, rig):
        sent = await rig.start(body())
        await until(lambda: bool(provider.requests))
        await taken(rig.world, OTHER)
        got = await sent.response()
        await rig.ended.wait()

    assert isinstance(rig.failure, WriterFenced)
    assert got.raw == b""
    assert not sent.request.finished
    assert "tool.requested" not in rig.kinds()


@pytest.mark.parametrize("after", ["model.requested", ""])
async def test_without_storage_nothing_is_asked_or_forwarded(after: str) -> None:
    async with scripted(lambda _: Reply(BLOCKS, start_delay=0.2)) as (provider, rig):
        if not after:
            rig.world.fail_next = 1000
        sent = await rig.start(body())
        if after:
            await until(lambda: after in rig.kinds())
            rig.world.fail_next = 1000
        got = await sent.response()
        await rig.ended.wait()

    assert isinstance(rig.failure, StorageUnavailable)
    assert got.raw == b""
    assert not sent.request.finished
    assert len(provider.requests) == (1 if after else 0)


async def test_a_short_outage_of_the_storage_is_not_noticed() -> None:
    async with scripted(lambda _: Reply(BLOCKS)) as (_, rig):
        rig.world.fail_next, rig.world.lose_answer = 1, True
        got = await rig.ask(body())

    assert got.status == 200
    assert rig.kinds() == ["model.requested", "model.completed", "tool.requested"]


@pytest.mark.parametrize("error", [KeeperGone("it is gone; reap the life"), StaleEpoch(1, 2)])
async def test_what_ends_the_requests_is_raised(error: HarnessDurableError) -> None:
    async def requests(rig: Rig) -> AsyncIterator[HeldRequest]:
        async for request in rig.requests():
            yield request
        raise error

    async with scripted(lambda _: Reply(BLOCKS, start_delay=0.1), requests=requests) as (provider, rig):
        sent = await rig.start(body())
        await until(lambda: bool(provider.requests))
        await sent.stream.aclose()
        rig.give.close()
        await rig.ended.wait()

    assert rig.failure is error
    recorded = "model.completed" in rig.kinds()
    assert recorded is isinstance(error, KeeperGone), "what is paid is recorded, unless we were superseded"


# ------------------------------------------------------------------------------------------- HTTP


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", 400),
        (b"GET http://elsewhere/ HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: minus\r\n\r\n", 400),
        (b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 300_000, 431),
    ],
)
async def test_what_is_no_request_gets_an_error_in_the_providers_shape(raw: bytes, status: int) -> None:
    async with scripted(lambda _: say("hi")) as (_, rig):
        sent = await rig.send(raw)
        got = await sent.response()
        await until(lambda: sent.request.finished)

    assert got.status == status
    assert got.error["message"]


async def test_a_chunked_body_in_single_bytes_is_read() -> None:
    content = json.dumps(body("grüße")).encode()
    chunks = b"".join(b"1\r\n" + content[at : at + 1] + b"\r\n" for at in range(len(content)))
    head = http(b"", headers={"content-length": "", "transfer-encoding": "chunked"})
    async with scripted(lambda _: say("hi")) as (provider, rig):
        sent = await rig.connect()
        for at in range(0, len(head), 7):
            await sent.stream.send(head[at : at + 7])
        await sent.stream.send(chunks + b"0\r\n\r\n")
        got = await sent.response()

    assert got.status == 200
    assert provider.requests[0].body == body("grüße")


async def test_a_harness_that_asks_whether_to_go_on_is_told_so() -> None:
    whole = http(body(), headers={"expect": "100-continue"})
    head, _, content = whole.partition(b"\r\n\r\n")
    async with scripted(lambda _: say("hi")) as (_, rig):
        sent = await rig.send(head + b"\r\n\r\n")
        told = await sent.stream.receive()
        await sent.stream.send(content)
        got = await sent.response()

    assert told.startswith(b"HTTP/1.1 100")
    assert got.status == 200


@pytest.mark.parametrize("chunked", [True, False])
async def test_a_body_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch, chunked: bool) -> None:
    monkeypatch.setattr(connection, "MAX_BODY", 1000)
    content = b"x" * 300_000
    raw = http(content)
    if chunked:
        raw = http(b"", headers={"content-length": "", "transfer-encoding": "chunked"})
        raw += b"%x\r\n" % len(content) + content + b"\r\n0\r\n\r\n"
    async with scripted(lambda _: say("hi")) as (provider, rig):
        got = await (await rig.send(raw)).response()

    assert got.status == 413
    assert got.error["type"] == "request_too_large"
    assert not provider.requests
    assert rig.kinds() == []


@pytest.mark.parametrize("cut", [0, 20, 150])
async def test_a_harness_that_hangs_up_within_its_request_gets_nothing(cut: int) -> None:
    async with scripted(lambda _: say("hi")) as (provider, rig):
        sent = await rig.send(http(body())[:cut]) if cut else await rig.connect()
        await sent.stream.send_eof()
        got = await sent.response()

    assert got.raw == b""
    assert not provider.requests
    assert rig.kinds() == []
