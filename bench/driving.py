"""Drive one driver of ``bench/drivers``: start it, ask it, see what it left on the disk.

What surprises: a driver lives for one round only, so that while a subject is measured no other one has a
process, a server or a poller on the machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
from collections.abc import Generator
from pathlib import Path
from typing import IO, NamedTuple, cast

import msgspec

from bench.environments import DRIVERS, Environment
from tests.worlds.postgres_support import CURRENT, Cluster

READY_SECONDS = 120.0
ANSWER_SECONDS = 120.0
_SETTINGS = """
shared_buffers = 1GB
max_wal_size = 8GB
checkpoint_timeout = 30min
"""


class Answer(msgspec.Struct, frozen=True):
    """``bare``: synced appends of 1 KB a second, in the same seconds. ``cpu``: seconds, of the client."""

    steps: int
    seconds: float
    cpu: float
    bare: float

    @property
    def rate(self) -> float:
        return self.steps / self.seconds


class Stored(NamedTuple):
    """What a store holds: bytes, bytes of disk blocks, files; and for a server, bytes of its WAL."""

    size: int
    allocated: int
    files: int
    wal: int = 0


class Failed(Exception):
    """A driver ended or said nothing; with the last line that it wrote."""


class Server:
    """A PostgreSQL of our own that waits for its disk: ``fsync`` and ``synchronous_commit`` are on."""

    ROLE = "bench"

    def __init__(self) -> None:
        self._cluster = Cluster(CURRENT, _SETTINGS)
        self._cluster.sql(f"create role {self.ROLE} superuser login password '{self.ROLE}'")
        self._made = 0

    def fresh(self) -> str:
        """A new database; its URL."""
        self._made += 1
        name = f"bench_{self._made}"
        self._cluster.sql(f"create database {name}")
        return f"postgresql://{self.ROLE}:{self.ROLE}@127.0.0.1:{self._cluster.port}/{name}"

    def stored(self, url: str) -> Stored:
        """Now: of that database, and the WAL of the whole server."""
        name = url.rpartition("/")[2]
        (row,) = self._cluster.sql(
            f"select pg_database_size('{name}'), pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"
        )
        size, wal = row.split("|")
        return Stored(int(size), int(size), 0, int(wal))

    def drop(self, url: str) -> None:
        self._cluster.sql(f"drop database {url.rpartition('/')[2]} with (force)")

    def version(self) -> str:
        return self._cluster.sql("show server_version")[0]

    def close(self) -> None:
        self._cluster.destroy()


class Driver:
    """A running driver. ``ready``: what it can do."""

    def __init__(self, script: str, where: Environment, store: str, size: int, scratch: Path) -> None:
        runs = where.node if script.endswith(".mjs") else where.python
        environment = {**os.environ, "BENCH_MODULES": str(where.modules), "WORKFLOW_LOCAL_DATA_DIR": ""}
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by ``close``)
        self._process = subprocess.Popen(
            [runs, str(DRIVERS / script), store, str(size), str(scratch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
            cwd=scratch,
            start_new_session=True,
        )
        try:
            self.ready: list[str] = json.loads(self._line(READY_SECONDS))["ready"]
        except Failed:
            self.close()
            raise

    def ask(self, what: str, sessions: int, seconds: float) -> Answer:
        stdin = cast(IO[str], self._process.stdin)
        stdin.write(json.dumps({"what": what, "sessions": sessions, "seconds": seconds}) + "\n")
        stdin.flush()
        return msgspec.json.decode(self._line(ANSWER_SECONDS), type=Answer)

    def _line(self, seconds: float) -> str:
        """The next line of JSON; whatever else the peer prints is passed over."""
        late = threading.Timer(seconds, self._kill)
        late.start()
        try:
            for line in cast(IO[str], self._process.stdout):
                if line.startswith('{"'):
                    return line
        finally:
            late.cancel()
        self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        raise Failed(said[-1] if said else f"it ended with {self._process.returncode} and said nothing")

    def _kill(self) -> None:
        """With the servers that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Its input ends; it closes its store and ends. May be called again."""
        if self._errors.closed:
            return
        cast(IO[str], self._process.stdin).close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        self._kill()
        self._process.wait()
        cast(IO[str], self._process.stdout).close()
        self._errors.close()


@contextlib.contextmanager
def driver(script: str, where: Environment, store: str, size: int, scratch: Path) -> Generator[Driver]:
    started = Driver(script, where, store, size, scratch)
    try:
        yield started
    finally:
        started.close()


def on_disk(place: Path) -> Stored:
    """All files below; a SQLite database's log is first moved into it, as its owner would at some time."""
    for found in place.rglob("*.db"):
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(found)) as database:
            database.execute("pragma wal_checkpoint(truncate)")
    files = [path.stat() for path in place.rglob("*") if path.is_file() and path.name != "server.log"]
    return Stored(sum(f.st_size for f in files), sum(f.st_blocks * 512 for f in files), len(files))


@contextlib.contextmanager
def folder(parent: Path) -> Generator[Path]:
    made = Path(tempfile.mkdtemp(dir=parent))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
