"""The self-test: proves with a scripted model what no document promises.

A turn is begun, one call is refused, the next one allowed, and the harness is killed while that runs. Then
another process gets the events with the result that we wrote, must go on in the middle of the turn, and the
refused call must not have run."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import ByteStream, Process, SocketAttribute, SocketStream
from msgspec import Raw

from harness_durable import clock
from harness_durable.adapter import Harness, Launch
from harness_durable.errors import HarnessStuck
from harness_durable.events import AgentSpec
from harness_durable.gateway import rawjson
from harness_durable.gateway.connection import Connection, HungUp, Malformed
from harness_durable.testing.provider import Reply, ToolUse, say
from harness_durable.testing.provider.messages import results
from harness_durable.testing.provider.policies import Script

from ..common.proof import Proof
from ..common.selftest import TEXT, Stage, stage, untrue
from ..common.shapes import Json, decode, encode, mapping, word
from . import install
from .conversation import Conversation
from .drive import LISTENING
from .events import Row, lasting, replay, replayed, stored
from .launch import Start, launch
from .naming import AGENT, BARRIER, PROVIDER, made
from .prepare import created
from .rebuild import Answer, Case, rebuild
from .server import Refused, Server

_DENIED, _CUT = "call_selftestdenied", "call_selftestcut"
_SESSION = "ses_00000000000000000000000000"
_MODEL, _TOKEN = "self-test", "self-test"
_POLL_SECONDS = 0.1
_REQUESTS = 3
"""Two of the first life, and the second one again."""
_STORY = Script(
    (
        Reply((ToolUse("bash", {"command": "touch ran", "description": "x"}, id=_DENIED),)),
        Reply((ToolUse("bash", {"command": "sleep 5", "description": "x"}, id=_CUT),)),
        say("continued"),
    )
)


async def self_test(harness: Harness) -> Proof:
    """Takes some seconds; no network, no key."""
    async with stage(_STORY) as on:
        test = _Test(harness, on)
        await on.play(test.run, Refused, HarnessStuck)
        ran = on.ran.exists()
    found = {
        "a call that was refused ran, or nobody was asked about it": test.asked and not ran,
        "its event store does not tell what it has": test.mirrored,
        "a turn that was killed does not go on in its middle": test.continued,
    }
    return Proof(untrue(install.NAME, harness, found))


async def _dial(port: int) -> ByteStream:
    return await anyio.connect_tcp("127.0.0.1", port)


class _Test:
    def __init__(self, harness: Harness, on: Stage) -> None:
        self._harness, self._on = harness, on
        self._rows: list[Row] = []
        self._reached = anyio.Event()
        self.asked = self.mirrored = self.continued = False

    async def run(self) -> None:
        self._rows = [created(_SESSION, str(self._on.work), self._harness.version, clock.now_ms())]
        async with self._life("1") as server:
            part: Json = {"id": made("prt", clock.now_ms(), "self-test"), "type": "text", "text": "self-test"}
            await self._prompt(server, made("msg", clock.now_ms(), "self-test"), [part])
            await self._reached.wait()
            await self._mirror(server)
        conversation = Conversation()
        for row in self._rows:
            conversation.take(row)
        user = conversation.last_user
        self.mirrored = user is not None and _DENIED in conversation.calls()
        if user is None or not self.mirrored:
            return
        # The call that was cut off is taken back, and asked for again: its response is in no log here.
        case = Case(_SESSION, True, _MODEL, str(self._on.work), clock.now_ms(), [], {_DENIED: _answer()})
        self._rows += rebuild(conversation, case).rows
        async with self._life("2") as server:
            await self._prompt(server, user.id, [])
            while len(self._on.model.requests) < _REQUESTS:
                await clock.sleep(_POLL_SECONDS)
        told = results(self._on.model.requests[-1])
        self.continued = _DENIED in told and told[_DENIED].text == TEXT

    async def _prompt(self, server: Server, number: str, parts: list[Json]) -> None:
        model = {"providerID": PROVIDER, "modelID": _MODEL}
        body: Json = {"messageID": number, "agent": AGENT, "model": model, "parts": parts}
        await server.call("POST", f"/session/{_SESSION}/prompt_async", body)

    async def _mirror(self, server: Server) -> None:
        body = await server.call("POST", "/sync/history", {_SESSION: len(self._rows) - 1})
        found = [one for item in rawjson.items(body) if (one := stored(bytes(item))) is not None]
        found = sorted((one for one in found if one.session == _SESSION), key=lambda one: one.seq)
        self._rows += [one.row for one in found if lasting(one.row)]

    @asynccontextmanager
    async def _life(self, name: str) -> AsyncGenerator[Server]:
        """A harness that has our rows, until the block ends."""
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, self._asked)
            port = int(listener.extra(SocketAttribute.local_port))
            async with self._on.life(self._plan(name), name, port) as process:
                yield await self._ready(process)
            tasks.cancel_scope.cancel()

    def _plan(self, name: str) -> Launch:
        home, work = str(self._on.homes / name), str(self._on.work)
        agent = AgentSpec(install.NAME, self._harness.version, _MODEL, "", "", tools=("bash",))
        version = self._harness.version
        return launch(Start(self._harness.path, version, agent, home, work, _TOKEN, (), _SESSION))

    async def _ready(self, process: Process) -> Server:
        said, port = b"", None
        while port is None and process.stdout is not None:
            said += await process.stdout.receive()
            port = re.search(LISTENING, said)
        server = Server(_dial, int(port[1]) if port is not None else 0, _TOKEN)
        project = mapping(await server.json("GET", "/project/current"))
        given: list[Raw] = []
        for place, row in enumerate(self._rows):
            data = {**row.data, "info": {**row.info, "projectID": project.get("id")}} if not place else None
            given.append(replayed(row.raw, _SESSION, place, encode(data) if data is not None else b""))
        await server.call("POST", "/sync/replay", replay(str(self._on.work), given))
        if BARRIER.encode() not in await server.call("GET", "/experimental/tool/ids"):
            raise Refused(500, "our plugin is not in place")
        return server

    async def _asked(self, stream: SocketStream) -> None:
        """A question of the plugin's."""
        async with stream:
            connection = Connection(stream)
            with suppress(HungUp, Malformed):
                incoming = await connection.read()
                event = decode(incoming.body) or {}
                denied = word(event.get("callID")) == _DENIED
                self.asked = self.asked or denied
                answer: Json = {"deny": "self-test"} if denied else {}
                await connection.send(200, [("content-type", "application/json")], encode(answer))
                if word(event.get("callID")) == _CUT:
                    self._reached.set()


def _answer() -> Answer:
    return Answer(ok=False, ran=False, text=TEXT, form={})
