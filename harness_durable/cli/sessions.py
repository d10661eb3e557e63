"""``harness-durable sessions``: what there is, and what needs a person."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from harness_durable.cli.common import (
    asynchronous,
    json_option,
    opened,
    print_json,
    print_rows,
    say,
    warn_of_remarks,
    world_options,
)

if TYPE_CHECKING:
    from harness_durable.world import SessionRow

STATES = ("needs_input", "waiting", "running", "queued", "idle", "closed")
"""``SessionStatus``, which takes longer to import than to write down."""


@click.command()
@world_options
@click.option("--state", "status", type=click.Choice(STATES), help="only those in this state")
@json_option
@asynchronous
async def sessions(world: str | None, app: str | None, status: str | None, as_json: bool) -> None:
    """List sessions, those that need a person first.

    A write that was cut off is told here, too; damage in the middle of a log is told by `trace`.
    """
    rows: list[SessionRow] = []
    async with opened(world, app) as store:
        after = ""
        while page := await store.sessions(after):
            rows.extend(page)
            after = page[-1].session
            for row in page:
                await warn_of_remarks(store, row.session)
    rows = [row for row in rows if status is None or row.status == status]
    rows.sort(key=lambda row: (row.status not in ("needs_input", "waiting"), -row.updated))
    if as_json:
        for row in rows:
            print_json(_fields(row))
        return
    print_rows(
        ("session", "state", "events", "last activity", "driven by"),
        [(row.session, _state(row), str(row.head), _ago(row.updated), _driver(row)) for row in rows],
    )
    stranded = sum(row.due is not None and not row.owner_alive and not _later(row) for row in rows)
    if stranded and sys.stdout.isatty():
        say(f"{stranded} with work and without a worker; `harness-durable recover` takes them up")


def _fields(row: SessionRow) -> dict[str, object]:
    return {
        "session": row.session,
        "state": row.status,
        "events": row.head,
        "created": row.created,
        "updated": row.updated,
        "due": row.due,
        "epoch": row.epoch,
        "owner": str(row.owner) if row.owner is not None else None,
        "owner_alive": row.owner_alive,
    }


def _later(row: SessionRow) -> bool:
    """It waits for a time: of a message for later, or of the next try."""
    from harness_durable import clock

    return row.due is not None and row.due > clock.now_ms() and not row.owner_alive


def _state(row: SessionRow) -> str:
    from harness_durable.cli.times import shown

    return f"{row.status}, wakes {shown(row.due)}" if row.due and _later(row) else row.status


def _driver(row: SessionRow) -> str:
    if row.owner is not None and row.owner_alive:
        return str(row.owner)
    if row.due is None:
        return "-"
    return "nobody" if row.owner is None else f"nobody (pid {row.owner.pid} on {row.owner.host} is dead)"


def _ago(time: int) -> str:
    from harness_durable import clock

    seconds = max(0, clock.now_ms() - time) // 1000
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"
