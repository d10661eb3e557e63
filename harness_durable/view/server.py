"""The viewer's server: one address, until it is told to stop.

What surprises: uvicorn's own handling of signals is off. The command that started it decides what Ctrl-C
means, and cancels it."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager

import anyio
import uvicorn

from harness_durable.errors import BadSetting
from harness_durable.view.app import application
from harness_durable.view.hall import Hall
from harness_durable.view.network import Door, is_loopback

PORT = 7337
"""Tried first; any free one otherwise."""


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None] | None) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._ready is not None and self.started:
            self._ready()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def door(host: str, names: Collection[str], *, token: bool = False) -> Door:
    """A token is made for whoever binds to more than this machine, or asks for one."""
    loopback = is_loopback(host)
    secret = secrets.token_urlsafe(24) if token or not loopback else ""
    return Door(loopback, secret, frozenset(name.lower() for name in names))


def listen(host: str, port: int | None) -> socket.socket:
    """``port`` None: the usual one if it is free, else any. Raises ``BadSetting``."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    last: OSError | None = None
    for wanted in (PORT, 0) if port is None else (port,):
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host.strip("[]"), wanted))
            found.listen(64)
        except OSError as error:
            found.close()
            last = error
        else:
            return found
    raise BadSetting(
        f"cannot listen on {host}, port {port or PORT}: {last}; name another with --host or --port"
    )


async def serve(
    hall: Hall,
    listening: socket.socket,
    who: Door,
    *,
    first: str = "",
    ready: Callable[[], None] | None = None,
) -> None:
    """Runs until it is cancelled. ``first``: as in ``application``; its log is read at once, so that the page
    finds it read. ``ready`` is called as soon as requests are answered."""
    app = application(hall, who, first=first)
    config = uvicorn.Config(
        app, access_log=False, log_level="warning", lifespan="off", timeout_graceful_shutdown=3, ws="none"
    )
    server = _Server(config, ready)

    async def answer() -> None:
        """Not cancelled with the rest: who is cut off in an answer would be told of with a traceback."""
        with anyio.CancelScope(shield=True):
            await server.serve(sockets=[listening])
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer)
        try:
            if first:
                await hall.sheet(first)
            await anyio.sleep_forever()
        finally:
            hall.over = server.should_exit = True
