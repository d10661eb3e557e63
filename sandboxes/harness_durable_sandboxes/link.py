"""The worker's hold on a life: :func:`attach` gives a ``Link`` over the keeper's ctl.sock.

What surprises: a link has no background task. Whoever waits for something (an answer, more output, a
request) reads the control connection for all who wait, and hands over when it is done or cancelled.
So nothing has to be started or owned besides the link itself. ``exit`` is as fresh as the last time
that somebody waited.
"""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import anyio
from anyio.abc import ByteStream, SocketAttribute

from harness_durable.errors import (
    BadInput,
    HarnessDied,
    KeeperGone,
    SandboxError,
    SandboxUnavailable,
    StaleEpoch,
)
from harness_durable.sandbox import Exit

from . import layout
from .client import ANSWER_TIME, LINE_CAP, Continued, Message, dial, encode_line, gone, impostor
from .keeper import CHUNK, FRAME_CAP

GOODBYE_TIME = 5.0  # seconds


async def attach(run: Path, token: str, epoch: int) -> KeeperLink:
    """Attach to the keeper whose run directory is ``run``, cutting off every older worker.

    Raises ``KeeperGone``, ``StaleEpoch``, or ``SandboxUnavailable`` for a keeper that does not answer
    or speaks another version of the protocol.
    """
    stream, answer = await dial(run, token, op="attach", epoch=epoch)
    try:
        return KeeperLink(run, token, stream, answer)
    except layout.UNREADABLE as error:
        await anyio.aclose_forcefully(stream)
        raise impostor(run) from error


class KeeperRequest:
    """A ``Request``. Its stream begins with the first byte that the harness sent."""

    def __init__(self, link: KeeperLink, number: int, stream: ByteStream) -> None:
        self._link, self._id, self._stream = link, number, stream

    @property
    def id(self) -> int:
        return self._id

    @property
    def stream(self) -> ByteStream:
        return self._stream

    async def done(self) -> None:
        """The answer is complete: the keeper lets the harness have its end, and the stream closes."""
        await self._link.tell("done", conn=self._id)
        await self._stream.aclose()


class KeeperLink:
    """A ``Link`` over ctl.sock, plus ``signal``, ``kill``, ``close_stdin``, ``ack``, ``status``."""

    def __init__(self, run: Path, token: str, stream: Continued, hello: Message) -> None:
        self._run, self._token, self._stream = run, token, stream
        self._epoch, self._pid = int(hello["epoch"]), int(hello["pid"])
        self._stdin, self._out = int(hello["in"]), int(hello["out"])
        self._exit: Exit | None = None
        self._exit_out = 0
        self._conns: list[int] = []
        self._answers: dict[int, Message | None] = {}
        self._asked = 0
        self._buffer = bytearray()
        self._failure: Callable[[], SandboxError] | None = None
        self._closed = self._reading = False
        self._changed = anyio.Event()
        self._writing, self._sending = anyio.Lock(), anyio.Lock()
        self.keeper_pid, self._keeper = _peer(stream)
        if hello["exit"]:
            self._ended(hello["exit"])

    @property
    def token(self) -> str:
        return self._token

    @property
    def exit(self) -> Exit | None:
        return self._exit

    @property
    def stdin_offset(self) -> int:
        return self._stdin

    async def said(self) -> bytes:
        self._check()
        return self._file("in.log", 0, self._stdin)

    async def write(self, frame: bytes) -> None:
        """Raises ``HarnessDied`` if nothing reads it any more, ``SandboxUnavailable`` for a full disk
        (then nothing was written), ``BadInput`` for a frame of more than 64 MiB."""
        if len(frame) > FRAME_CAP:
            raise BadInput(f"a frame of {len(frame)} bytes; at most {FRAME_CAP} can be written at once")
        async with self._writing:
            await self._until(lambda: None not in self._answers.values())  # of a cancelled write
            answer = await self._ask("stdin", frame, at=self._stdin)
        if answer["ok"]:
            return
        if answer["error"] == "closed":
            raise HarnessDied(self._exit.code if self._exit else None, "its standard input is closed")
        raise SandboxUnavailable(f"{self._run}: stdin not written: {answer['error']}; try again")

    async def output(self, offset: int = 0) -> AsyncIterator[tuple[int, bytes]]:
        while True:
            try:
                await self._until_output(offset)
            except KeeperGone:  # what it had written is still there
                while chunk := self._file("out.log", offset, CHUNK):
                    offset += len(chunk)
                    yield offset, chunk
                raise
            end = self._exit_out if self._exit else self._out
            if offset >= end:
                return
            while offset < end:
                chunk = self._file("out.log", offset, min(CHUNK, end - offset))
                if not chunk:
                    raise SandboxUnavailable(f"{self._run}/out.log is shorter than its keeper says")
                offset += len(chunk)
                yield offset, chunk

    async def _until_output(self, offset: int) -> None:
        await self._until(lambda: self._out > offset or self._exit is not None)

    async def errors(self, tail: int = 4096) -> bytes:
        self._check()
        with self._opened("err.log") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - tail))
            return file.read(min(size, tail))

    async def requests(self) -> AsyncIterator[KeeperRequest]:
        while True:
            await self._until(lambda: bool(self._conns))
            number = self._conns.pop(0)
            try:
                stream = await self._dial("take", id=number)
            except SandboxUnavailable:  # the harness did not wait
                self._check()
                continue
            except BaseException:  # cancelled: it is still to be taken
                self._conns.insert(0, number)
                raise
            yield KeeperRequest(self, number, stream)

    async def pid(self) -> int:
        self._check()
        return self._pid

    async def dial(self, port: int) -> ByteStream:
        """A connection to 127.0.0.1:``port`` inside the sandbox; ends at once if nobody listens."""
        return await self._dial("dial", port=port)

    async def signal(self, number: int) -> None:
        """To the harness's own process."""
        await self._ask("signal", sig=number)

    async def kill(self) -> None:
        """SIGKILL to all that the keeper holds; it stays, and records the exit."""
        await self._ask("kill")

    async def close_stdin(self) -> None:
        await self._ask("eof")

    async def ack(self, offset: int) -> None:
        """Output before ``offset`` will never be read again; the disk gets it back."""
        await self._ask("ack", out=offset)

    async def status(self) -> Message:
        """The keeper's view, for doctors and tests: sizes, held connections, bytes kept, isolation."""
        return await self._ask("status")

    async def shutdown(self) -> None:
        self._check()
        try:
            await self._ask("shutdown")
            await self._until(lambda: False)
        except KeeperGone:
            await self._until_keeper_ended()
        await self.aclose()

    async def aclose(self) -> None:
        self._closed = True
        await anyio.aclose_forcefully(self._stream)
        if self._keeper >= 0:
            os.close(self._keeper)
            self._keeper = -1
        self._notify()

    # -- the control connection ------------------------------------------------------------------

    async def tell(self, op: str, body: bytes = b"", **fields: object) -> None:
        """Send one command, whole: it is not torn by a cancellation."""
        self._check()
        head = encode_line(op=op, size=len(body), **fields)
        with anyio.CancelScope(shield=True):
            async with self._sending:
                try:
                    with anyio.fail_after(ANSWER_TIME):
                        await self._stream.send(head + body if len(body) < CHUNK else head)
                        if len(body) >= CHUNK:
                            await self._stream.send(body)
                    return
                except TimeoutError as error:
                    raise await self._give_up(self._mute()) from error
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    pass  # reading finds out why
        await self._until(lambda: False)

    async def _ask(self, op: str, body: bytes = b"", **fields: object) -> Message:
        self._asked += 1
        number = self._asked
        self._answers[number] = None
        try:
            await self.tell(op, body, id=number, **fields)
            await self._until(lambda: self._answers[number] is not None)
        except BaseException:
            if self._failure or self._closed:
                self._answers.pop(number, None)
            raise
        answer = self._answers.pop(number)
        assert answer is not None
        return answer

    async def _dial(self, op: str, **fields: object) -> Continued:
        self._check()
        try:
            return (await dial(self._run, self._token, op=op, epoch=self._epoch, **fields))[0]
        except (KeeperGone, StaleEpoch) as error:
            with anyio.move_on_after(GOODBYE_TIME):  # the control connection ends, too, and says why
                await self._until(lambda: False)
            raise await self._give_up(error) from None

    async def _until(self, ready: Callable[[], bool]) -> None:
        while not ready():
            self._check()
            changed = self._changed
            if self._reading:
                await changed.wait()
                continue
            self._reading = True
            try:
                self._feed(await self._stream.receive(CHUNK))
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                self._fail(lambda: gone(self._run))
                with suppress(SandboxError, *layout.UNREADABLE):  # none: it was killed
                    self._ended(json.loads(self._file("exit.json", 0, 4096)))
            except layout.UNREADABLE as error:
                raise await self._give_up(impostor(self._run)) from error
            finally:
                self._reading = False
                self._notify()

    def _feed(self, data: bytes) -> None:
        *lines, rest = (bytes(self._buffer) + data).split(b"\n")
        if len(rest) > LINE_CAP:
            raise ValueError("a line that is too long")
        self._buffer = bytearray(rest)
        for line in lines:
            self._hear(json.loads(line))

    def _hear(self, message: Message) -> None:
        if "re" in message:
            self._answers[message["re"]] = message
            self._stdin = message.get("in", self._stdin)
            return
        match message["ev"]:
            case "size":
                self._out = int(message["out"])
            case "conn":
                self._conns.append(int(message["id"]))
            case "exit":
                self._ended(message)
            case "superseded":
                newer = int(message["epoch"])
                self._fail(lambda: StaleEpoch(self._epoch, newer))
            case _:  # of a later keeper with the same protocol
                return

    def _ended(self, exit: Message) -> None:  # noqa: A002  (the protocol's word)
        self._exit = Exit(layout.number(exit["code"]), layout.number(exit["oom_kill"]), str(exit["why"]))
        self._exit_out = int(exit["out"])

    def _fail(self, failure: Callable[[], SandboxError]) -> SandboxError:
        """The first failure stays: what follows from it is less exact."""
        self._failure = self._failure or failure
        return self._failure()

    async def _give_up(self, failure: SandboxError) -> SandboxError:
        """Whoever waits for anything of this link waits in vain: the control connection ends with that."""
        await anyio.aclose_forcefully(self._stream)
        return self._fail(lambda: failure)

    def _mute(self) -> SandboxError:
        return SandboxUnavailable(f"{self._run}: its keeper does not answer; reap the life")

    def _check(self) -> None:
        if self._closed:
            raise anyio.ClosedResourceError
        if self._failure:
            raise self._failure()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def _file(self, name: str, offset: int, size: int) -> bytes:
        with self._opened(name) as file:
            file.seek(offset)
            return file.read(size)

    @contextmanager
    def _opened(self, name: str) -> Generator[IO[bytes]]:
        """A file of the run directory."""
        try:
            file = layout.opened(self._run / name)
        except FileNotFoundError:
            raise KeeperGone("somebody ended this life and removed its run directory") from None
        except OSError as error:
            raise SandboxUnavailable(f"{self._run}/{name} cannot be read: {error}; reap the life") from error
        with file:
            yield file

    async def _until_keeper_ended(self) -> None:
        if self._keeper >= 0:
            with anyio.fail_after(ANSWER_TIME):
                await anyio.wait_readable(self._keeper)


def _peer(stream: Continued) -> tuple[int, int]:
    """The keeper's pid as this process sees it, and a descriptor that tells its end (or -1)."""
    sock = stream.extra(SocketAttribute.raw_socket)
    if not hasattr(os, "pidfd_open") or not hasattr(socket, "SO_PEERCRED"):
        return 0, -1
    size = struct.calcsize("3i")
    pid: int = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[0]
    try:
        return pid, os.pidfd_open(pid) if pid > 0 else -1
    except OSError:  # it has just ended
        return pid, -1
