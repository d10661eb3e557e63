"""A gateway in front of a scripted provider, and a harness that talks to it over in-memory sockets."""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import msgspec
from anyio.abc import SocketStream, TaskGroup

from harness_durable.gateway import Gateway, Kind, Progress, Routes, Upstream, wire
from harness_durable.journal import Journal
from harness_durable.testing.provider import Policy, ScriptedProvider
from tests.unit.memory_world import MemoryWorld
from tests.unit.session_kit import begun

TOKEN = "life-token-5f1c"
KEY = "sk-real-canary-94b1"
MODEL = "model-x"


class HeldRequest:
    """A connection as the keeper gives it out."""

    def __init__(self, number: int, stream: SocketStream) -> None:
        self.id, self.stream, self.finished = number, stream, False

    async def done(self) -> None:
        self.finished = True
        await self.stream.aclose()


class Got(msgspec.Struct):
    """A response as the harness saw it; ``status`` of 0 and no body: the connection just ended."""

    status: int
    headers: dict[str, str]
    body: bytes
    raw: bytes

    @property
    def error(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self.body)["error"]
        return found


class Sent:
    """A request on its way: the harness's end of the connection."""

    def __init__(self, request: HeldRequest, stream: SocketStream) -> None:
        self.request, self.stream = request, stream

    async def response(self) -> Got:
        raw = b""
        with anyio.fail_after(20):
            try:
                while True:
                    raw += await self.stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                await self.stream.aclose()
        return parsed(raw)


def parsed(raw: bytes) -> Got:
    head, _, rest = raw.partition(b"\r\n\r\n")
    if head.startswith(b"HTTP/1.1 100"):
        head, _, rest = rest.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Got(int(first.split(" ")[1]) if first else 0, headers, rest, raw)


def classify(name: str) -> Kind:
    """``Shell`` and ``Look`` are tools that the harness runs without asking."""
    if name.startswith("mcp__"):
        return Kind("never", "custom", True)
    return Kind("never" if name == "Shell" else "safe", "builtin", name not in ("Shell", "Look"))


@dataclass
class Rig:
    """One gateway at work. ``ended`` is set when ``serve`` is over, ``failure`` is what it raised."""

    journal: Journal
    world: MemoryWorld
    gateway: Gateway
    ready: anyio.Event
    progress: list[Progress]
    ended: anyio.Event = field(default_factory=anyio.Event)
    failure: BaseException | None = None
    count: int = 0

    def __post_init__(self) -> None:
        self.give, self._take = anyio.create_memory_object_stream[HeldRequest](100)

    async def requests(self) -> AsyncIterator[HeldRequest]:
        async with self._take:
            async for request in self._take:
                yield request

    async def serve(self, requests: AsyncIterator[HeldRequest] | None = None) -> None:
        try:
            await self.gateway.serve(requests or self.requests())
        except Exception as error:
            self.failure = error
        finally:
            self.ended.set()

    async def connect(self) -> Sent:
        ours, theirs = socket.socketpair()
        self.count += 1
        request = HeldRequest(self.count, await SocketStream.from_socket(theirs))
        await self.give.send(request)
        return Sent(request, await SocketStream.from_socket(ours))

    async def send(self, raw: bytes) -> Sent:
        sent = await self.connect()
        await sent.stream.send(raw)
        return sent

    async def start(
        self,
        body: Mapping[str, object] | bytes,
        *,
        path: str = "/v1/messages?beta=true",
        headers: Mapping[str, str] | None = None,
        method: str = "POST",
    ) -> Sent:
        return await self.send(http(body, path=path, headers=headers, method=method))

    async def ask(
        self,
        body: Mapping[str, object] | bytes,
        *,
        path: str = "/v1/messages?beta=true",
        headers: Mapping[str, str] | None = None,
        method: str = "POST",
    ) -> Got:
        sent = await self.start(body, path=path, headers=headers, method=method)
        return await sent.response()

    def log(self) -> bytes:
        """Everything that was ever written, records and blobs."""
        stored = self.world.stored["s"]
        return b"\n".join([*(record.body for record in stored.records), *stored.blobs.values()])

    def kinds(self) -> list[str]:
        """Kinds of the records about model calls and tools."""
        kinds = (record.kind for record in self.world.stored["s"].records)
        return [kind for kind in kinds if kind.startswith(("model.", "tool."))]


def http(
    body: Mapping[str, object] | bytes,
    *,
    path: str = "/v1/messages",
    headers: Mapping[str, str] | None = None,
    method: str = "POST",
) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"host": "x", "x-api-key": TOKEN, "content-length": str(len(content)), **(headers or {})}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items() if value)]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def body(text: str = "hello", *, stream: bool = True, **more: object) -> dict[str, object]:
    messages = [{"role": "user", "content": text}]
    return {"model": MODEL, "max_tokens": 9, "messages": messages, "stream": stream, **more}


@asynccontextmanager
async def gateway(
    url: str,
    *,
    journal: Journal | None = None,
    world: MemoryWorld | None = None,
    life: str = "L1",
    ready: bool = True,
    auth: str = "key",
    speaks: str = "anthropic",
    headers: Mapping[str, str] | None = None,
    requests: Callable[[Rig], AsyncIterator[HeldRequest]] | None = None,
    routes: Routes | None = None,
) -> AsyncGenerator[Rig]:
    """A gateway in a running turn; ends when the block does, and raises what ``serve`` raised unless the
    test has looked at ``failure``."""
    world = world or MemoryWorld()
    journal = journal or await begun(world)
    event, progress = anyio.Event(), list[Progress]()
    if ready:
        event.set()
    upstream = Upstream(url, KEY, headers or {}, "login" if auth == "login" else "key")
    made = Gateway(
        journal=journal,
        wire=wire(speaks),
        upstream=upstream,
        life=life,
        token=TOKEN,
        ready=event,
        classify=classify,
        on_progress=progress.append,
        routes=routes,
    )
    rig = Rig(journal, world, made, event, progress)
    tasks: TaskGroup
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rig.serve, requests(rig) if requests is not None else None)
        try:
            yield rig
        finally:
            rig.give.close()
            with anyio.move_on_after(20) as patience:
                await rig.ended.wait()
            tasks.cancel_scope.cancel()
            assert not patience.cancelled_caught, "the gateway did not end"


@asynccontextmanager
async def scripted(policy: Policy, **more: object) -> AsyncGenerator[tuple[ScriptedProvider, Rig]]:
    """A provider and a gateway before it."""
    async with ScriptedProvider(policy, check=False) as provider, gateway(provider.url, **more) as rig:  # type: ignore[arg-type]  # passed on as they are
        yield provider, rig


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while not condition():  # noqa: ASYNC110 (what is waited for tells nobody)
            await anyio.sleep(0.002)
