"""The Worlds that all tests of Worlds run on. To add one: a line in ``URLS``, ``LEFT`` and ``EMPTY``. It is
hurt in the ways that its own module offers; one that offers none fails."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import apsw

from harness_durable import worlds
from harness_durable.testing.worlds import Subject
from harness_durable_worlds._sqlite_db import open_db
from tests.worlds import postgres_support, reference
from tests.worlds.postgres_support import SYSTEM

URLS: dict[str, Callable[[Path], str]] = {
    "file": lambda folder: f"file:{folder}/store",
    "sqlite": lambda folder: f"sqlite:{folder}/store.db",
    "postgres": lambda folder: postgres_support.cluster().url(schema_of(folder)),
}

WAYS: dict[str, Callable[[Path], str]] = {
    **URLS,
    "pooled-postgres": lambda folder: postgres_support.pooled_url(schema_of(folder)),
}
"""With all ways to reach one that change how it works, for the conformance suite."""

LEFT: dict[str, Callable[[Path], list[str]]] = {
    "file": lambda folder: sorted(path.name for path in (folder / "store").iterdir()),
    "sqlite": lambda folder: rows_of(folder / "store.db") + sorted(map(str, folder.glob("*-workers/*"))),
    "postgres": lambda folder: postgres_support.cluster().rows_of(schema_of(folder)),
    "pooled-postgres": lambda folder: postgres_support.cluster(SYSTEM).rows_of(schema_of(folder)),
}
"""What there is in a closed store: nothing but ``EMPTY`` if it has no apps."""

EMPTY: dict[str, list[str]] = {"file": ["VERSION"], "sqlite": [], "postgres": [], "pooled-postgres": []}

OWN_CLOCK = frozenset({"postgres", "pooled-postgres"})
"""Those that judge by a clock of their own what is due."""

SLACK = 20.0
"""Time limits of the suite are for quiet machines; a test asserts that a thing happens, not how soon."""


def schema_of(folder: Path) -> str:
    """A schema for each folder."""
    return f"t_{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"


def rows_of(database: Path) -> list[str]:
    connection = open_db(database, apsw.SQLITE_OPEN_READWRITE)
    try:
        tables = ("session", "event", "blob", "snapshot", "progress")
        return [
            f"{table}: {row}" for table in tables for row in connection.execute(f"select app from {table}")
        ]
    finally:
        connection.close()


def subject(world: str, folder: Path) -> Subject:
    """A fresh store of this kind in ``folder``."""
    url = WAYS[world](folder)
    return Subject(url, faults=worlds.faults(url), slack=SLACK, own_clock=world in OWN_CLOCK)


def plain(folder: Path, mutant: str = "") -> Subject:
    """The reference World, or one of its mutants."""
    return Subject(f"plain:{folder}/store?{mutant}", reference.OPENER, slack=SLACK)
