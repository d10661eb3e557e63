"""One connection to a keeper's ctl.sock, past its first line, and what it means when that fails."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream

from harness_durable.errors import KeeperGone, KeeperIncompatible, SandboxUnavailable, StaleEpoch

from . import layout
from .keeper import PROTOCOL

Message = dict[str, Any]  # JSON of the keeper's protocol

ANSWER_TIME = 30.0  # seconds; the keeper never waits for anything, except for a kill
LINE_CAP = 1 << 20
_OURS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # say nothing of the keeper


async def dial(run: Path, token: str, **hello: object) -> tuple[Continued, Message]:
    """One connection to ctl.sock, and the keeper's answer to its first line."""
    stream = await connect(run)
    epoch = hello.get("epoch")
    try:
        with anyio.fail_after(ANSWER_TIME):
            await stream.send(encode_line(v=PROTOCOL, token=token, **hello))
            lines = BufferedByteReceiveStream(stream)
            answer: Message = json.loads(await lines.receive_until(b"\n", LINE_CAP))
        _judge(run, answer, epoch if isinstance(epoch, int) else 0)
    except BaseException as error:
        await anyio.aclose_forcefully(stream)
        raise _unreachable(run, error) from error
    return Continued(lines.buffer, stream), answer


async def connect(run: Path) -> ByteStream:
    """Raises ``KeeperGone`` if nobody listens. A link that a harness put there, to another socket of this
    host, is nobody; and where files can be held without being opened, the path may be of any length."""
    path, held = run / "ctl.sock", -1
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise gone(run)
        if hasattr(os, "O_PATH"):
            held = os.open(path, os.O_PATH | os.O_NOFOLLOW)
            path = Path(f"/proc/self/fd/{held}")
        return await anyio.connect_unix(path)
    except OSError as error:
        raise _unreachable(run, error) from error
    finally:
        if held >= 0:
            os.close(held)


def _unreachable(run: Path, error: BaseException) -> BaseException:
    """What a failure to talk to the keeper means."""
    if isinstance(error, PermissionError):
        return SandboxUnavailable(f"{run}: not ours to attach to; run as the user who started it")
    if isinstance(error, OSError) and error.errno in _OURS:
        return SandboxUnavailable(f"{run}: its keeper could not be asked ({error}); raise ulimit -n")
    if isinstance(error, TimeoutError):
        return SandboxUnavailable(f"{run}: its keeper does not answer; try again, or reap the life")
    if isinstance(error, (AttributeError, anyio.DelimiterNotFound)):
        return impostor(run)
    ends = (anyio.IncompleteRead, anyio.EndOfStream, anyio.BrokenResourceError, OSError)
    if isinstance(error, ends):
        return gone(run)
    return impostor(run) if isinstance(error, layout.UNREADABLE) else error


def gone(run: Path) -> KeeperGone:
    return KeeperGone(f"{run}: its keeper is no longer there; recover the session with a new life")


def impostor(run: Path) -> KeeperIncompatible:
    return KeeperIncompatible(
        f"{run}: what answers there is not its keeper; the life is ended, and its turn goes on from the log"
    )


def _judge(run: Path, answer: Message, epoch: int) -> None:
    """Raise what a refusal means."""
    error = answer.get("error")
    if answer.get("v") != PROTOCOL:
        raise KeeperIncompatible(
            f"{run}: its keeper speaks protocol {answer.get('v')}, this version {PROTOCOL}; the life is "
            "ended, and its turn goes on from the log"
        )
    if error == "stale epoch":
        raise StaleEpoch(epoch, int(answer["epoch"]))
    if not answer.get("ok"):
        raise SandboxUnavailable(f"{run}: its keeper refused: {error}; reap the life and recover")


def encode_line(**fields: object) -> bytes:
    return json.dumps(fields).encode() + b"\n"


class Continued(ByteStream):
    """A stream of which the first bytes were read already."""

    def __init__(self, first: bytes, stream: ByteStream) -> None:
        self._first, self._stream = first, stream

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if self._first:
            data, self._first = self._first[:max_bytes], self._first[max_bytes:]
            return data
        return await self._stream.receive(max_bytes)

    async def send(self, item: bytes) -> None:
        await self._stream.send(item)

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def aclose(self) -> None:
        await self._stream.aclose()

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        return self._stream.extra_attributes  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]  # anyio
