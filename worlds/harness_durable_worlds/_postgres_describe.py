"""What this World really guarantees here, for ``doctor``."""

from __future__ import annotations

from collections.abc import Iterator

from harness_durable.world import Description
from harness_durable_worlds._postgres_db import Row
from harness_durable_worlds._postgres_line import Store
from harness_durable_worlds._postgres_news import BLIND_SECONDS
from harness_durable_worlds._postgres_sql import SCHEMA

_APART_SECONDS = 2.0
"""Clocks that differ by more confuse people who read a trace."""


def describe(store: Store, settings: Row, *, notified: bool, ahead: float) -> Description:
    """``settings`` is a row of the statement of that name; ``notified``: notifications arrive; ``ahead``: so
    many seconds the server's clock is ahead of ours."""
    version, commit, fsync, full_pages, standby = (str(each) for each in settings)
    polling = f"by polling, every {BLIND_SECONDS * 1000:.0f} ms while somebody waits"
    pooler = "a connection pooler stands between" if store.pooled else "none"
    return Description(
        name="postgres",
        url=store.shown,
        durability=f"an append is committed before it is told (synchronous_commit={commit}, fsync={fsync})",
        notification="at once, by LISTEN and NOTIFY beside polling" if notified else polling,
        reach="any number of processes on any number of hosts",
        details={
            "server": version,
            "synchronous_commit": commit,
            "fsync": fsync,
            "schema": f"{store.target.schema} (version {SCHEMA})",
            "notifications": "on" if notified else "off: polling",
            "pooler": pooler,
            "clock": f"the server's is {_difference(ahead)} this host's",
            "connections": "4 for each process",
            "a dead worker is noticed": (
                "on its host at once, elsewhere when its lease ends"
                if store.pooled
                else "on its host at once, elsewhere 2 s after its connection has closed"
            ),
        },
        warnings=tuple(_warnings(store, commit, fsync, full_pages, standby, notified=notified, ahead=ahead)),
    )


def _warnings(
    store: Store, commit: str, fsync: str, full_pages: str, standby: str, *, notified: bool, ahead: float
) -> Iterator[str]:
    if fsync == "off":
        yield (
            "fsync is off on this server: a power cut can lose everything, and damage the database; "
            "set fsync = on"
        )
    if full_pages == "off":
        yield "full_page_writes is off on this server: a power cut can damage the database; set it on"
    if commit == "off":
        yield (
            "synchronous_commit is off: a crash of the server loses what was acknowledged within the last "
            "half second, so that an effect may happen twice; set synchronous_commit = on for this role"
        )
    if standby == "True":
        yield "this server is a standby and takes no writes; name the primary"
    if store.pooled:
        yield (
            "a connection pooler stands between: no prepared statements (about half the appends a second), "
            "and a dead worker of another host is noticed when its lease ends; connect to the server itself"
        )
    if not notified:
        yield (
            f"notifications do not arrive, so others' appends are seen every {BLIND_SECONDS * 1000:.0f} ms; "
            "connect to the server itself, or to a pooler in session mode"
        )
    if abs(ahead) > _APART_SECONDS:
        yield (
            f"the server's clock is {_difference(ahead)} this host's: times in a trace will not fit where "
            "hosts took turns; keep all clocks in step (NTP). Leases and due times do not depend on it"
        )


def _difference(ahead: float) -> str:
    return f"{abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'}"
