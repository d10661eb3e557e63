"""What each check of a sandbox works with: a fresh sandbox, and ways to see what goes on inside it.

What surprises: whether a process is gone is not asked of a process list. Each process to be watched
holds the writing end of a FIFO; its end of file comes exactly when the last of them has died.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from pathlib import Path
from typing import NoReturn, TypeVar

import anyio
import msgspec

from harness_durable import clock
from harness_durable.sandbox import Content, LifeRef, LifeSpec, Link, Sandbox

T = TypeVar("T")

PATH = "/usr/local/bin:/usr/bin:/bin"
PATIENCE = 20.0  # seconds

Make = Callable[[], AbstractAsyncContextManager[Sandbox]]


class BrokenPromise(Exception):
    """What a check saw that must not be."""


def broken(detail: str) -> NoReturn:
    raise BrokenPromise(detail)


def expect(true: bool, detail: str) -> None:
    if not true:
        broken(detail)


class Place(msgspec.Struct, frozen=True):
    """A directory that the sandbox sees: ``host`` is its path here, ``inside`` its path there (the same
    if None). ``python`` is run inside. ``kill_keeper`` ends a life's keeper by SIGKILL, so that nobody
    in it can tidy up; without it S14 is not tried."""

    host: Path
    inside: Path | None = None
    python: str = "python3"
    kill_keeper: Callable[[LifeRef], object] | None = None


class Watch:
    """Tells whether any process that opened the FIFO for writing is alive."""

    def __init__(self, host: Path, inside: Path) -> None:
        os.mkfifo(host)
        host.chmod(0o666)
        self.path = str(inside)
        self._fd = os.open(host, os.O_RDONLY | os.O_NONBLOCK)
        self.seen = b""

    def held(self) -> bool:
        try:
            while data := os.read(self._fd, 4096):
                self.seen += data
        except BlockingIOError:
            return True
        return False

    def close(self) -> None:
        os.close(self._fd)


class Bench:
    """One check's place of work."""

    def __init__(self, sandbox: Sandbox, place: Place) -> None:
        self.sandbox, self.place = sandbox, place
        self.inside = place.inside or place.host
        self._lives: list[tuple[LifeRef, Link]] = []
        self._watches: list[Watch] = []

    def fresh(self, what: str) -> str:
        return f"{what}-{secrets.token_hex(6)}"

    def spec(
        self,
        *argv: str,
        env: Mapping[str, str] | None = None,
        files: Mapping[str, Content] | None = None,
        ttl: float = 600.0,
    ) -> LifeSpec:
        life = self.fresh("life")
        base = {"PATH": PATH, "HOME": "@HOME@", **(env or {})}
        token, here = secrets.token_hex(16), str(self.inside)
        return LifeSpec(life, "check", argv, base, here, files or {}, token, ttl, workspace=here)

    async def start(self, spec: LifeSpec, epoch: int = 1) -> tuple[LifeRef, Link]:
        """A life that ends with the check, whatever happens."""
        ref, link = await self.sandbox.start(spec, epoch)
        self._lives.append((ref, link))
        return ref, link

    async def shell(self, script: str, *arguments: str, epoch: int = 1) -> tuple[LifeRef, Link]:
        return await self.start(self.spec("sh", "-c", script, "sh", *arguments), epoch)

    async def attach(self, ref: LifeRef, epoch: int) -> Link:
        second = await self.sandbox.attach(ref, epoch)
        self._lives.append((ref, second))
        return second

    def watch(self) -> Watch:
        name = self.fresh("fifo")
        watch = Watch(self.place.host / name, self.inside / name)
        self._watches.append(watch)
        return watch

    async def held_by(self, watch: Watch, marks: bytes) -> None:
        """Until each process that is to be watched has written its mark."""

        async def probe() -> bool:
            return watch.held() and set(marks) <= set(watch.seen)

        await self.until(f"processes marked {marks!r} started", probe)

    async def gone(self, watch: Watch) -> None:
        async def probe() -> bool:
            return not watch.held()

        await self.until("the last process ended", probe)

    async def until(self, what: str, probe: Callable[[], Awaitable[T]]) -> T:
        """Ask until the answer is true; ``what`` is for the sentence if it never comes."""
        end = clock.monotonic() + PATIENCE
        while not (answer := await probe()):
            expect(clock.monotonic() < end, f"in {PATIENCE:.0f} s this did not happen: {what}")
            await clock.sleep(0.005)
        return answer

    async def clean(self) -> None:
        for _, link in self._lives:
            await link.aclose()
        for ref, _ in self._lives:
            await self.sandbox.reap(ref)
        for watch in self._watches:
            watch.close()


async def said_by(link: Link, text: bytes, offset: int = 0) -> tuple[int, bytes]:
    """Follow the output until ``text`` is in it: the offset after, and all that was read."""
    seen = b""
    with anyio.fail_after(PATIENCE):
        async with aclosing(_generator(link, offset)) as chunks:
            async for after, chunk in chunks:
                seen += chunk
                if text in seen:
                    return after, seen
    broken(f"the harness ended without saying {text!r}; it said {seen[-200:]!r}")


async def everything(link: Link, offset: int = 0) -> bytes:
    """All the output up to the harness's end."""
    seen = bytearray()
    with anyio.fail_after(3 * PATIENCE):
        async for after, chunk in link.output(offset):
            seen += chunk
            expect(after == offset + len(seen), f"offset {after} after {len(seen)} bytes")
    return bytes(seen)


async def _generator(link: Link, offset: int) -> AsyncGenerator[tuple[int, bytes]]:
    async for item in link.output(offset):
        yield item


@asynccontextmanager
async def bench(make: Make, place: Place) -> AsyncGenerator[Bench]:
    async with make() as sandbox:
        one = Bench(sandbox, place)
        try:
            yield one
        finally:
            with anyio.CancelScope(shield=True):
                await one.clean()
