"""One connection to a keeper's ctl.sock, past its first line, and what it means when that fails."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream

from harness_durable.errors import KeeperGone, KeeperIncompatible, SandboxUnavailable, StaleEpoch

from .keeper import PROTOCOL

Message = dict[str, Any]  # JSON of the keeper's protocol

ANSWER_TIME = 30.0  # seconds; the keeper never waits for anything, except for a kill
_LINE_CAP = 1 << 20
_SUN_PATH = 100


async def dial(run: Path, token: str, **hello: object) -> tuple[Continued, Message]:
    """One connection to ctl.sock, and the keeper's answer to its first line."""
    stream = await connect(run)
    epoch = hello.get("epoch")
    try:
        with anyio.fail_after(ANSWER_TIME):
            await stream.send(encode_line(v=PROTOCOL, token=token, **hello))
            lines = BufferedByteReceiveStream(stream)
            answer: Message = json.loads(await lines.receive_until(b"\n", _LINE_CAP))
        _judge(run, answer, epoch if isinstance(epoch, int) else 0)
    except BaseException as error:
        await anyio.aclose_forcefully(stream)
        raise _unreachable(run, error) from error
    return Continued(lines.buffer, stream), answer


async def connect(run: Path) -> ByteStream:
    """Raises ``KeeperGone`` if nobody listens."""
    path, directory = str(run / "ctl.sock"), -1
    try:
        if len(os.fsencode(path)) > _SUN_PATH:
            directory = os.open(run, os.O_PATH if hasattr(os, "O_PATH") else os.O_RDONLY)
            path = f"/proc/self/fd/{directory}/ctl.sock"
        return await anyio.connect_unix(path)
    except OSError as error:
        raise _unreachable(run, error) from error
    finally:
        if directory >= 0:
            os.close(directory)


def _unreachable(run: Path, error: BaseException) -> BaseException:
    """What a failure to talk to the keeper means."""
    if isinstance(error, PermissionError):
        return SandboxUnavailable(f"{run}: not ours to attach to; run as the user who started it")
    if isinstance(error, TimeoutError):
        return SandboxUnavailable(f"{run}: its keeper does not answer; try again, or reap the life")
    if isinstance(error, (ValueError, LookupError, TypeError, AttributeError, anyio.DelimiterNotFound)):
        return SandboxUnavailable(f"{run}: what answers there is not its keeper; reap the life")
    ends = (anyio.IncompleteRead, anyio.EndOfStream, anyio.BrokenResourceError, OSError)
    return gone(run) if isinstance(error, ends) else error


def gone(run: Path) -> KeeperGone:
    return KeeperGone(f"{run}: its keeper is no longer there; recover the session with a new life")


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
