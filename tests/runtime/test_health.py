"""What a worker tells of itself: over HTTP, in its log, to systemd; and the guard that ends what hangs."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from anyio.abc import SocketStream

from harness_durable.errors import BadSetting
from harness_durable.runtime import health as health_module
from harness_durable.runtime.health import Driven, Health, Report, Waiting, line, parse_address, waiting
from harness_durable.runtime.service import Service
from harness_durable.runtime.serving import serve
from harness_durable.runtime.supervised import Guard, Supervisor
from harness_durable.runtime.worker import Worker
from harness_durable.world import Owner
from harness_durable.worlds import open_world
from tests.runtime.kit import HandClock, Harness, Store, Works, accepted, equipped, is_, until
from tests.unit.memory_world import OTHER
from tests.unit.session_kit import SESSION


async def asked(port: int, request: bytes) -> tuple[int, bytes]:
    """Status and body of one exchange."""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(request)
        answer = b""
        try:
            while True:
                answer += await stream.receive()
        except anyio.EndOfStream:
            pass
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), body


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@asynccontextmanager
async def served(world: Store, /, harness: Harness | None = None, **settings: Any) -> AsyncGenerator[Service]:
    """A whole worker service, as the command runs it, until the body ends."""
    found: list[Service] = []
    ready = anyio.Event()

    def up(service: Service) -> None:
        found.append(service)
        ready.set()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve, world, equipped(harness, **settings), Guard(60), up)
            await ready.wait()
            yield found[0]
            tasks.cancel_scope.cancel()


# ------------------------------------------------------------------------------------------- HTTP


async def test_healthz_tells_what_is_driven_and_for_how_long_it_was_quiet() -> None:
    world, works, port = Store(), Works(), free_port()
    await accepted(world, "m-1")
    url = "sqlite://me:secret@host/world.db"
    async with served(world, Harness(works), health=f"127.0.0.1:{port}", concurrency=2, world=url) as service:
        await works.begun.wait()
        status, body = await asked(port, get("/healthz"))
        told = json.loads(body)
        assert (status, told["state"], told["slots"], told["free"]) == (200, "ok", 2, 1)
        assert (told["worker"], told["app"]) == (service.worker.owner.worker, "default")
        assert told["world"] == "sqlite://me:***@host/world.db"
        [driven] = told["driven"]
        assert (driven["session"], driven["turn"]) == (SESSION, "m-1")
        assert driven["events"] > 2
        assert min(told["uptime_seconds"], told["last_claim_seconds"], driven["quiet_seconds"]) >= 0


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (get("/"), 404),
        (get("/healthz", "POST"), 404),
        (get("/healthz?verbose"), 200),
        (get("/healthz", "HEAD"), 200),
        (b"nonsense\r\n\r\n", 400),
    ],
)
async def test_only_its_question_is_answered(request_: bytes, status: int) -> None:
    port = free_port()
    async with served(Store(), health=f":{port}"):
        assert (await asked(port, request_))[0] == status


async def test_who_says_nothing_keeps_nobody_else_waiting() -> None:
    port = free_port()
    async with served(Store(), health=f":{port}"), await anyio.connect_tcp("127.0.0.1", port):
        assert (await asked(port, get("/healthz")))[0] == 200


async def test_who_sends_nonsense_and_hangs_up_is_nobodys_trouble() -> None:
    """Such as a probe that speaks TLS: the answer to it cannot be sent, and the worker goes on."""

    class Gone:
        async def __aenter__(self) -> Gone:
            return self

        async def __aexit__(self, *_: object) -> None:
            self.closed = True

        async def receive(self, size: int) -> bytes:
            return b"\x16\x03\x01 nonsense\r\n\r\n"

        async def send(self, data: bytes) -> None:
            raise anyio.BrokenResourceError

    gone = Gone()
    async with watched(Store()) as (_, health):
        await health_module._answer(health.report, cast(SocketStream, gone))  # pyright: ignore[reportPrivateUsage]
    assert gone.closed


async def test_an_address_that_is_taken_is_said_before_anything_is_claimed() -> None:
    world = Store()
    await accepted(world, "m-1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        health = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(BadSetting, match="cannot be used"):
            await serve(world, equipped(health=health), Guard(60), lambda service: None)
    assert (await world.session(SESSION)).epoch == 0


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        (":80", ("127.0.0.1", 80)),
        ("80", ("127.0.0.1", 80)),
        ("[::1]:80", ("::1", 80)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
    ],
)
def test_addresses(address: str, found: tuple[str, int]) -> None:
    assert parse_address(address) == found


@pytest.mark.parametrize("address", ["localhost", "x:", "x:-1", "x:70000", "x:8o"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(BadSetting, match="HOST:PORT"):
        parse_address(address)


# ------------------------------------------------------------------------------------- the report


@asynccontextmanager
async def watched(world: Store, **settings: Any) -> AsyncGenerator[tuple[Service, Health]]:
    with anyio.fail_after(30):
        async with Worker.open(world, equipped(**settings)) as worker, anyio.create_task_group() as tasks:
            service = Service(worker)
            health = Health(service)
            tasks.start_soon(service.run)
            tasks.start_soon(health.tell)
            yield service, health
            tasks.cancel_scope.cancel()


async def test_a_store_that_is_away_is_unhealthy_but_not_at_once(hands: HandClock) -> None:
    world = Store()
    async with watched(world, store_patience_seconds=3600) as (_, health):
        await hands.advance(2)
        world.down = True
        await hands.advance(3)
        assert health.report().healthy
        await hands.advance(10)
        report = health.report()
        assert (report.state, report.healthy) == ("store away", False)
        assert "the store is away" in report.trouble
        world.down = False
        await until(lambda: _healthy(health), hands)


async def test_a_busy_worker_writes_a_line_now_and_then_and_an_idle_one_none(
    hands: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    world = Store()
    with caplog.at_level("INFO"):
        async with watched(world, lease_seconds=3600, health_log_seconds=60):
            await hands.advance(130)
            assert not [message for message in caplog.messages if "health:" in message]
            await accepted(world, "m-1")
            await world.claim_session(OTHER, SESSION)  # somebody has it: nothing waits
            await hands.advance(60)
            assert not [message for message in caplog.messages if "health:" in message]


async def test_a_due_session_that_nobody_drives_is_seen(
    hands: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    world, works = Store(), Works()
    with caplog.at_level("INFO"):
        async with Worker.open(world, equipped(Harness(works), concurrency=1)) as worker:
            service = Service(worker)
            health = Health(service)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(service.run)
                tasks.start_soon(health.tell)
                await accepted(world, "m-1", session="a")
                await until(lambda: _is(works.begun.is_set()), hands)
                await accepted(world, "m-1", session="b")
                await hands.advance(121)
                report = health.report()
                assert (report.waiting, report.free) == (1, 0)
                assert report.oldest_waiting_seconds > 100
                tasks.cancel_scope.cancel()
    assert any("1 due, the oldest for" in text and "a: last event" in text for text in caplog.messages)


async def test_what_was_taken_since_somebody_looked_is_not_said_to_wait_longer_and_longer(
    hands: HandClock,
) -> None:
    """Else whoever is alerted by it is alerted by a session that waited for a moment."""
    world, works = Store(), Works()
    settings: dict[str, Any] = {"concurrency": 1, "health_log_seconds": 60, "lease_seconds": 3600}
    async with Worker.open(world, equipped(Harness(works), **settings)) as worker:
        service = Service(worker)
        health = Health(service)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(service.run)
            tasks.start_soon(health.tell)
            await accepted(world, "m-1", session="a")
            await until(lambda: _is(works.begun.is_set()), hands)
            before = health.report().uptime_seconds
            await hands.advance(58 - before)
            await accepted(world, "m-1", session="b")
            await hands.advance(3)
            assert 1 < health.report().oldest_waiting_seconds < 4
            works.enough.set()
            await hands.advance(50)
            assert health.report().oldest_waiting_seconds < 4
            tasks.cancel_scope.cancel()


async def test_what_waits_is_due_and_has_no_live_owner(hands: HandClock) -> None:
    world, now = Store(), hands.now_ms()
    for name in ("due", "held"):
        await accepted(world, "m-1", session=name)
    inbox = await accepted(world, session="later")
    await inbox.accept("m-1", "x", not_before=now + 1000)
    await accepted(world, session="idle")
    await world.claim_session(OTHER, "held")
    found = await waiting(world)
    assert (found.sessions, found.oldest) == (1, now)


async def test_a_world_that_knows_what_waits_is_asked(tmp_path: Path, hands: HandClock) -> None:
    world, dead = await open_world(f"sqlite:{tmp_path / 'w.db'}"), Owner("gone", "here", 1)
    try:
        assert await waiting(world) == Waiting(seen=hands.now_ms())
        for name in ("first", "held", "left"):
            await accepted(world, "m-1", session=name)
            await hands.advance(1)
        async with Worker.open(world, equipped(lease_seconds=3600)) as worker:
            await world.claim_session(worker.owner, "held")
            await world.register(dead)
            await world.claim_session(dead, "left")
            await world.unregister(dead)
            found = await waiting(world)
        assert (found.sessions, found.oldest) == (2, hands.now_ms() - 3000)
    finally:
        await world.aclose()


def test_a_line_for_people() -> None:
    driven = (Driven("a", "m-1", 12, 3.2),)
    report = Report("ok", "w", "default", "sqlite:x", 1, 4, 3, driven, 0, 0, 2, 61.0)
    assert line(report) == "health: ok; 1 of 4 slots; 2 due, the oldest for 61 s; a: last event 3 s ago"


# -------------------------------------------------------------------------------- who supervises it


async def test_systemd_is_told_that_it_is_up_alive_and_stopping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hands: HandClock
) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        systemd.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        world = Store()
        await accepted(world, "m-1")
        async with served(world) as service:
            await until(is_(world, "completed"), hands)
            await hands.advance(3)
            service.stop()
            said: list[bytes] = []

            async def stopping() -> bool:
                try:
                    said.append(systemd.recv(100))
                except BlockingIOError:
                    return b"STOPPING=1" in said
                return False

            await until(stopping)
    assert (said[0], said[1], said[-1]) == (b"READY=1", b"WATCHDOG=1", b"STOPPING=1")


def test_without_systemd_nobody_is_told_and_nothing_breaks(tmp_path: Path) -> None:
    for address in ("", str(tmp_path / "nobody"), "@nobody-listens-here"):
        supervisor = Supervisor({"NOTIFY_SOCKET": address})
        supervisor.ready()
        supervisor.alive()


GUARDED = """
import sys, threading
from harness_durable.runtime import supervised
supervised.TICK = 0.02
guard = supervised.Guard(1.0 if sys.argv[1] == "beats" else 0.2).start()
print("up", flush=True)
if sys.argv[1] == "beats":
    for _ in range(100):
        guard.beat()
        threading.Event().wait(0.01)
if sys.argv[1] == "leaves":  # and a thread does not let the interpreter end
    threading.Thread(target=sys.stdin.read).start()
    guard.leave(0.2)
    guard.beat()
if sys.argv[1] == "hangs":
    sys.stdin.read()
while sys.argv[1] == "floods":
    print("x" * 100_000, file=sys.stderr, flush=True)
"""


@pytest.mark.parametrize(
    ("what", "code", "said"),
    [("beats", 0, ""), ("hangs", 1, "stood still"), ("leaves", 1, "could not leave in time")],
)
def test_the_guard_ends_a_process_that_hangs(what: str, code: int, said: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", GUARDED, what],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        process.wait(60)
        assert process.stderr is not None
        told = process.stderr.read()
    assert (process.returncode, said in told) == (code, True), told
    assert (told == "") == (code == 0)


def test_the_guard_ends_also_a_process_that_hangs_since_nobody_reads_what_it_says() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", GUARDED, "floods"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert process.wait(60) == 1
    finally:
        process.kill()
        process.communicate()


def test_a_process_that_was_paused_has_not_hung() -> None:
    """C080: what counts are the guard's own ticks."""
    process = subprocess.Popen(
        [sys.executable, "-c", GUARDED, "beats"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        os.kill(process.pid, signal.SIGSTOP)
        with socket.socket() as nobody:  # longer than its patience
            nobody.settimeout(1.3)
            nobody.bind(("127.0.0.1", 0))
            nobody.listen()
            with pytest.raises(TimeoutError):
                nobody.accept()
        os.kill(process.pid, signal.SIGCONT)
        assert process.wait(60) == 0


async def _healthy(health: Health) -> bool:
    return health.report().healthy


async def _is(value: bool) -> bool:
    return value
