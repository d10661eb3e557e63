"""One command on this host, run to its end: nothing that it started is left when it returns."""

from __future__ import annotations

import os
import secrets
import signal
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import anyio
from anyio.to_thread import run_sync

from harness_durable.errors import SandboxUnavailable
from harness_durable.sandbox import ExecResult

from . import processes

_MARKER = "HARNESS_DURABLE_EXEC"


async def run(
    argv: tuple[str, ...],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: bytes,
    timeout: float,
    scratch: Path,
) -> ExecResult:
    """Input and output are unnamed files in ``scratch``: any size, and no child that keeps a pipe open can
    delay the end. The environment has one more name, by which its children are found. As a shell
    would, 127 says not found and 126 not executable."""
    _check_directory(cwd, argv[0])
    marks = {_MARKER: secrets.token_hex(16)}
    with _file(scratch, stdin) as source, _file(scratch) as out, _file(scratch) as err:
        try:
            process = await anyio.open_process(
                list(argv),
                cwd=cwd,
                env={**env, **marks},
                stdin=source,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        except ValueError as error:
            raise SandboxUnavailable(f"cannot run {argv[0]!r}: {error}; leave NUL bytes out") from error
        except OSError as error:
            code = 126 if isinstance(error, PermissionError) else 127
            return ExecResult(code, b"", f"{argv[0]}: {error.strerror}\n".encode())
        try:
            with anyio.move_on_after(timeout) as limit:
                await process.wait()
        finally:
            with anyio.CancelScope(shield=True):
                await run_sync(_kill_rest, process.pid, marks)
                await process.wait()
                await process.aclose()
        code = -signal.SIGKILL if process.returncode is None else process.returncode
        return ExecResult(code, _content(out), _content(err), limit.cancelled_caught)


def _check_directory(cwd: Path, program: str) -> None:
    """Else its absence would look like the program's."""
    if not cwd.is_dir():
        raise SandboxUnavailable(f"cannot run {program!r} in {cwd}: no such directory; create it first")


def _kill_rest(group: int, marks: Mapping[str, str]) -> None:
    """The group first, then those who left it: the marker is in their environment."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    processes.kill(processes.marked(marks))


@contextmanager
def _file(scratch: Path, content: bytes = b"") -> Generator[IO[bytes]]:
    with tempfile.TemporaryFile(dir=scratch) as file:
        file.write(content)
        file.seek(0)
        yield file


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()
