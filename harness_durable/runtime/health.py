"""What a worker is doing, as numbers: over HTTP, in its log, and to systemd.

``GET /healthz`` answers 200 while the worker makes progress or could, 503 while it cannot: the store is away,
or it hangs. The body is one JSON object either way. A worker that breathes and does nothing is seen by
``oldest_waiting_seconds``: a due session that nobody drives.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Literal

import anyio
import msgspec
from anyio.abc import SocketAttribute, SocketStream, TaskStatus

from harness_durable import clock
from harness_durable.errors import BadSetting, StorageUnavailable
from harness_durable.gateway.connection import Connection, HungUp, Malformed
from harness_durable.runtime.service import Service
from harness_durable.world import TellsWaiting, World
from harness_durable.worlds import redact

log = logging.getLogger("harness_durable.worker")

EXCHANGE_SECONDS = 5.0

MANY = 1000

AWAY_SECONDS = 5.0
"""A store that is away for less is no reason to be called unhealthy."""


class Driven(msgspec.Struct, frozen=True):
    """One session in hand. ``quiet_seconds``: since its last recorded event."""

    session: str
    turn: str
    events: int
    quiet_seconds: float


class Waiting(msgspec.Struct, frozen=True):
    """Sessions that are due and that nobody drives, when somebody looked last, at ``seen``. Whether they
    still wait is not known, so that their age does not grow until somebody looks again. Times are in ms."""

    sessions: int = 0
    oldest: int | None = None
    seen: int = 0

    @property
    def oldest_seconds(self) -> float:
        return 0.0 if self.oldest is None else _rounded((self.seen - self.oldest) / 1000)


class Report(msgspec.Struct, frozen=True):
    """The body of ``/healthz``. ``slots`` are all, ``free`` those without a session; ages are in seconds."""

    state: Literal["ok", "stopping", "store away", "hung"]
    worker: str
    app: str
    world: str
    uptime_seconds: float
    slots: int
    free: int
    driven: tuple[Driven, ...]
    last_claim_seconds: float
    last_renewal_seconds: float
    waiting: int
    oldest_waiting_seconds: float
    trouble: str = ""

    @property
    def healthy(self) -> bool:
        return self.state in ("ok", "stopping")


class Health:
    """Of one service. ``serve`` and ``tell`` are tasks beside it."""

    def __init__(self, service: Service) -> None:
        self._service, self._began = service, clock.monotonic()
        self._waiting = Waiting()

    def report(self) -> Report:
        """How things are now; what waits, as of the last look."""
        service, now = self._service, clock.monotonic()
        worker, settings = service.worker, service.settings
        away = worker.contact.away > AWAY_SECONDS
        return Report(
            state="hung" if service.hung else "store away" if away else _stopping(service),
            worker=worker.owner.worker,
            app=settings.app,
            world=redact(settings.world),
            uptime_seconds=_rounded(now - self._began),
            slots=settings.concurrency,
            free=service.free,
            driven=self._driven(),
            last_claim_seconds=_rounded(now - worker.contact.claimed),
            last_renewal_seconds=_rounded(now - worker.contact.renewed),
            waiting=self._waiting.sessions,
            oldest_waiting_seconds=self._waiting.oldest_seconds,
            trouble=worker.contact.trouble if away else "",
        )

    async def serve(self, address: str, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Answer for ever. Raises ``BadSetting`` if the address cannot be used, before it is started."""
        host, port = parse_address(address)
        try:
            listener = await anyio.create_tcp_listener(local_host=host, local_port=port)
        except OSError as error:
            raise BadSetting(f"health = {address!r} cannot be used: {error}; choose another port") from None
        async with listener:
            bound = listener.extra(SocketAttribute.local_port)
            log.info("health at http://%s:%d/healthz", f"[{host}]" if ":" in host else host, bound)
            task_status.started()
            await listener.serve(partial(_answer, self.report))

    async def tell(self) -> None:
        """Write a line into the log now and then, whenever anything is driven or due."""
        while True:
            await clock.sleep(self._service.settings.health_log_seconds)
            try:
                look = partial(waiting, self._service.worker.world)
                self._waiting = await self._service.worker.contact.ask(look)
            except StorageUnavailable as trouble:
                log.warning("what is due cannot be seen: %s", trouble)
            report = self.report()
            if report.driven or report.waiting or not report.healthy:
                log.info("%s", line(report))

    def _driven(self) -> tuple[Driven, ...]:
        now = clock.now_ms()
        found: list[Driven] = []
        for session, driver in sorted(self._service.worker.driving.items()):
            state = driver.journal.state
            turn = state.turn.id if state.turn is not None else ""
            found.append(Driven(session, turn, state.seq, _rounded((now - state.updated) / 1000)))
        return tuple(found)


async def waiting(world: World) -> Waiting:
    """Ask the World (then ``MANY`` are as good as more), or look through all sessions, page by page."""
    if isinstance(world, TellsWaiting):
        found = await world.waiting(MANY)
        return Waiting(len(found), min((since for _, since in found), default=None), clock.now_ms())
    now, due, after = clock.now_ms(), list[int](), ""
    while page := await world.sessions(after):
        due += [row.due for row in page if row.due is not None and row.due <= now and not row.owner_alive]
        after = page[-1].session
    return Waiting(len(due), min(due, default=None), now)


def line(report: Report) -> str:
    """A report for people."""
    told = [f"health: {report.state}", f"{report.slots - report.free} of {report.slots} slots"]
    if report.trouble:
        told.append(report.trouble)
    if report.waiting:
        told.append(f"{report.waiting} due, the oldest for {report.oldest_waiting_seconds:.0f} s")
    told += [f"{one.session}: last event {one.quiet_seconds:.0f} s ago" for one in report.driven]
    return "; ".join(told)


def parse_address(address: str) -> tuple[str, int]:
    """``HOST:PORT``, ``[::1]:PORT``; without a host it is loopback. Raises ``BadSetting``."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise BadSetting(f"health = {address!r} is no HOST:PORT; use for instance 127.0.0.1:8321")
    return host.strip("[]") or "127.0.0.1", int(port)


async def _answer(report: Callable[[], Report], stream: SocketStream) -> None:
    """One exchange. Who is slow, or speaks no HTTP, is left."""
    async with stream:
        with anyio.move_on_after(EXCHANGE_SECONDS), suppress(HungUp):
            connection = Connection(stream)
            try:
                request = await connection.read()
                found = report()
                status = 200 if found.healthy else 503
                if request.path != "/healthz" or request.method not in ("GET", "HEAD"):
                    await connection.send(404, [], b"")
                else:
                    body = b"" if request.method == "HEAD" else msgspec.json.encode(found) + b"\n"
                    await connection.send(status, [("content-type", "application/json")], body)
            except Malformed as wrong:
                await connection.send(wrong.status, [], b"")


def _stopping(service: Service) -> Literal["ok", "stopping"]:
    return "stopping" if service.stopped else "ok"


def _rounded(seconds: float) -> float:
    return round(max(0.0, seconds), 3)
