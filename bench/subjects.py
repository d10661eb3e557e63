"""Who takes part in the append scenario, what drives it, and what each one's setting guarantees."""

from __future__ import annotations

from typing import NamedTuple

from bench.environments import ABSURD, DBOS, LANGGRAPH, RESTATE, TEMPORAL, WORKFLOW, Kind

FULL = "acknowledged = on the disk"


class Subject(NamedTuple):
    """``store``: file, sqlite or postgresql. ``guarantee``: what holds when a step has returned. ``reserves``
    space before it needs it, so that nobody can say what a step took."""

    name: str
    script: str
    kind: Kind | None
    store: str
    guarantee: str
    reserves: bool = False


SUBJECTS = (
    Subject("harness-durable, file", "ours.py", None, "file", f"{FULL}: fdatasync of the session's file"),
    Subject("harness-durable, SQLite", "ours.py", None, "sqlite", f"{FULL}: WAL, synchronous = FULL"),
    Subject("harness-durable, Postgres", "ours.py", None, "postgresql", f"{FULL}: synchronous_commit = on"),
    Subject("plain files", "plain.py", None, "file", f"{FULL}: a file and a thread a session, fdatasync"),
    Subject("plain SQLite", "plain.py", None, "sqlite", f"{FULL}: WAL, synchronous = FULL, one row a commit"),
    Subject(
        "plain Postgres", "plain.py", None, "postgresql", f"{FULL}: one row a commit, a connection a session"
    ),
    Subject(
        "DBOS, SQLite",
        "dbos_steps.py",
        DBOS,
        "sqlite",
        f"{FULL}: its default, rollback journal, synchronous = FULL",
    ),
    Subject("DBOS, Postgres", "dbos_steps.py", DBOS, "postgresql", f"{FULL}: synchronous_commit = on"),
    Subject("Absurd, Postgres", "absurd_steps.py", ABSURD, "postgresql", f"{FULL}: synchronous_commit = on"),
    Subject(
        "LangGraph saver, SQLite",
        "langgraph_steps.py",
        LANGGRAPH,
        "sqlite",
        f"{FULL}: WAL, synchronous = FULL",
    ),
    Subject(
        "LangGraph saver, Postgres",
        "langgraph_steps.py",
        LANGGRAPH,
        "postgresql",
        f"{FULL}: synchronous_commit = on",
    ),
    Subject(
        "Workflow SDK, world-local",
        "workflow_steps.mjs",
        WORKFLOW,
        "file",
        "survives its process, not a loss of power: nothing is ever synced",
    ),
    Subject(
        "Workflow SDK, world-postgres",
        "workflow_steps.mjs",
        WORKFLOW,
        "postgresql",
        f"{FULL}: synchronous_commit = on",
    ),
    Subject(
        "Restate",
        "restate_steps.py",
        RESTATE,
        "file",
        f"{FULL}: its server syncs the log of its partition",
        True,
    ),
    Subject(
        "Temporal, development server",
        "temporal_steps.py",
        TEMPORAL,
        "sqlite",
        "its server for development, on SQLite; not what it has for production, so no claim against Temporal",
    ),
)
NAMES = [subject.name for subject in SUBJECTS]
