"""The client of OpenCode's server, over byte streams; and the barrier that its plugin asks."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import ByteStream

from harness_durable import clock
from harness_durable.adapter import Harness, LifeContext
from harness_durable.errors import HarnessStuck
from harness_durable.journal import Inbox, Journal
from harness_durable.tools.host import ToolHost
from harness_durable_adapters.common.answers import lines
from harness_durable_adapters.common.shapes import Json, mapping
from harness_durable_adapters.opencode.gate import TOO_DEEP, Gate
from harness_durable_adapters.opencode.server import Broken, Refused, Server
from tests.unit.memory_world import MemoryWorld
from tests.unit.session_kit import AGENT, SESSION, asked, begun


class Canned(ByteStream):
    """A connection on which these chunks come back, then its end."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks, self.sent = list(chunks), b""

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if not self._chunks:
            raise anyio.EndOfStream
        return self._chunks.pop(0)

    async def send(self, item: bytes) -> None:
        self.sent += item

    async def send_eof(self) -> None: ...
    async def aclose(self) -> None: ...


def server(connections: Sequence[Canned]) -> Server:
    waiting = list(connections)

    async def dial(port: int) -> ByteStream:
        assert port == 4096
        return waiting.pop(0)

    return Server(dial, 4096, "secret")


def answer(status: int, *chunks: bytes) -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))
    return b"HTTP/1.1 %d X\r\ntransfer-encoding: chunked\r\n\r\n" % status + body


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(_: float) -> None:
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(clock, "sleep", at_once)


async def test_an_answer_comes_whole_however_it_is_cut() -> None:
    raw = answer(200, b'{"a":', b"1}")
    connection = Canned(*(raw[place : place + 1] for place in range(len(raw))))
    assert await server([connection]).json("POST", "/x", {"b": 2}) == {"a": 1}
    assert connection.sent.startswith(b"POST /x HTTP/1.1\r\n")
    assert connection.sent.endswith(b'{"b":2}')
    assert b"Basic b3BlbmNvZGU6c2VjcmV0" in connection.sent


async def test_a_connection_that_breaks_is_tried_again_and_a_refusal_is_not() -> None:
    cut = Canned(answer(200, b"1")[:-9])
    assert await server([Canned(), cut, Canned(answer(200, b"2"))]).json("GET", "/") == 2
    with pytest.raises(Refused) as refused:
        await server([Canned(answer(500, b"no such table"))]).call("GET", "/")
    assert (refused.value.status, refused.value.said) == (500, "no such table")
    with pytest.raises(HarnessStuck):
        await server([Canned() for _ in range(4)]).call("GET", "/")


async def test_events_come_one_by_one_until_the_connection_ends() -> None:
    parts = b'data: {"n":1}\n\n', b': ping\n\ndata: {"n', b'":2}\n\n'
    seen: list[Json] = []
    with pytest.raises(Broken):
        async for event in server([Canned(answer(200, *parts)[:-5])]).events("/global/event"):
            seen.append(event)
    assert seen == [{}, {"n": 1}, {"n": 2}]


def test_a_reason_answers_each_question() -> None:
    assert lines("blue\n\n red ", 3) == ["blue", "red", "red"]
    assert lines("", 1) == ["yes"]


# ------------------------------------------------------------------------------------ the barrier


class Rig:
    """A barrier in a turn whose model has asked for ``call_1``, a shell command."""

    def __init__(self, journal: Journal) -> None:
        self.journal, self.mirrored = journal, 0
        context = LifeContext(
            session=SESSION,
            life="L1",
            turn="m-1",
            rung="start",
            agent=AGENT,
            harness=Harness("", "1"),
            journal=journal,
            tools=ToolHost((), journal, SESSION, "L1", custom_name=lambda name: f"durable_{name}"),
            token="token",
            home="/home/agent",
            cwd="/ws",
            ready=anyio.Event(),
        )
        self._routes = Gate(context, self._mirror, self._is_ours).routes()

    def _is_ours(self, session: str, agent: str | None) -> bool:
        return session == (agent or "ses_1")

    async def _mirror(self) -> None:
        self.mirrored += self.journal.state.tool_calls["call_1"].released_in is None

    async def ask(self, route: str, body: Json | bytes) -> Json:
        known: Callable[[bytes], Awaitable[bytes]] = self._routes[route]
        return mapping(
            json.loads(await known(body if isinstance(body, bytes) else json.dumps(body).encode()))
        )

    @classmethod
    async def begin(cls) -> Rig:
        journal = await begun(MemoryWorld())
        await asked(journal, ("call_1", "bash", {"command": "x"}), origin="builtin")
        return cls(journal)


def about(call: str, **more: object) -> Json:
    return {"sessionID": "ses_1", "callID": call, "tool": "bash", **more}


async def test_a_call_is_mirrored_then_released_then_finished() -> None:
    rig = await Rig.begin()
    assert await rig.ask("before", about("call_1", args={"command": "x"})) == {}
    assert rig.mirrored == 1
    assert rig.journal.state.tool_calls["call_1"].released_in == "L1"
    assert await rig.ask("after", about("call_1", output={"output": "out\n", "title": "t"})) == {}
    call = rig.journal.state.tool_calls["call_1"]
    assert (call.outcome, call.result and call.result.text) == ("completed", "out\n")
    assert "its result was" in str((await rig.ask("before", about("call_1")))["deny"])


async def test_calls_of_subagents_pass_the_same_barrier_and_their_models_wait_for_the_mirror() -> None:
    rig = await Rig.begin()
    assert await rig.ask("model", {"sessionID": "ses_child"}) == {}
    assert rig.mirrored == 1
    await asked(rig.journal, ("call_2", "bash", {"command": "y"}), origin="builtin", agent="ses_child")
    assert (await rig.ask("before", about("call_2")))["deny"], "another session has asked for it"
    assert await rig.ask("before", about("call_2", sessionID="ses_child")) == {}
    await rig.ask("after", about("call_2", sessionID="ses_child", output={"output": "out\n"}))
    assert rig.journal.state.tool_calls["call_2"].outcome == "completed"


async def test_what_is_not_in_the_log_or_not_ours_does_not_run() -> None:
    rig = await Rig.begin()
    assert "not in the log" in str((await rig.ask("before", about("call_9")))["deny"])
    assert (await rig.ask("before", about("call_1", sessionID="ses_2")))["deny"]
    assert rig.journal.state.tool_calls["call_1"].released_in is None
    await rig.ask("after", about("call_1", sessionID="ses_2", output={"output": "x"}))
    assert rig.journal.state.tool_calls["call_1"].open


async def test_an_input_that_nobody_could_check_does_not_run() -> None:
    rig = await Rig.begin()
    deep = b'{"sessionID":"ses_1","callID":"call_1","tool":"bash","args":' + b"[" * 500 + b"]" * 500 + b"}"
    assert await rig.ask("before", deep) == {"deny": TOO_DEEP}
    assert rig.journal.state.tool_calls["call_1"].outcome == "not_started"


async def test_a_command_that_a_stop_killed_is_not_completed() -> None:
    rig = await Rig.begin()
    await rig.ask("before", about("call_1"))
    await (await Inbox.open(rig.journal.reader.world, SESSION)).request_stop("Ann")
    await rig.journal.still_ours()
    await rig.ask("after", about("call_1", output={"output": "half\nUser aborted the command"}))
    assert rig.journal.state.tool_calls["call_1"].open
