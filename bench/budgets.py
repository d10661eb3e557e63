"""What was promised, and whether it was kept. ``WHY`` says what stands in the way where it was not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from bench.measure import Report, Series, Stat, ratio, stat

FILE, SQLITE, POSTGRES = (f"harness-durable, {world}" for world in ("file", "SQLite", "Postgres"))
COUNTS = {1: "1 session", 16: "16 sessions", 64: "64 sessions"}


class Budget(NamedTuple):
    """A promise: the median of ``over`` (to ``under``, round by round) is at least or at most ``limit``.
    Both are (scenario, table, subject, case)."""

    words: str
    op: Literal["≥", "≤"]
    limit: float
    unit: str
    over: tuple[str, str, str, str]
    under: tuple[str, str, str, str] | None = None
    digits: int = 2


class Verdict(NamedTuple):
    budget: Budget
    found: Stat | None

    @property
    def kept(self) -> bool | None:
        """``None`` if it was not measured."""
        if self.found is None:
            return None
        value = self.found.median
        return value >= self.budget.limit if self.budget.op == "≥" else value <= self.budget.limit


def _disk() -> Iterator[Budget]:
    """Ratios to a bare fdatasync in the same second."""
    wanted = (
        (FILE, "append", (0.65, 1.6, 2.2)),
        (FILE, "step", (0.45, 1.1, 1.4)),
        (SQLITE, "step", (0.38, 2.6, 4.7)),
        (POSTGRES, "step", (0.2, 1.7, 2.8)),
    )
    for subject, what, limits in wanted:
        for count, limit in zip(COUNTS, limits, strict=True):
            words = f"{subject}: {what}s of 1 KB, {COUNTS[count]}, to bare syncs"
            yield Budget(words, "≥", limit, "x", ("append", f"{what} 1 KB", subject, COUNTS[count]))


def _peers() -> Iterator[Budget]:
    wanted = (
        ("DBOS, Postgres", POSTGRES, 3, 20),
        ("DBOS, SQLite", SQLITE, 4, 30),
        ("Absurd, Postgres", POSTGRES, 1.3, 5),
        ("LangGraph saver, SQLite", SQLITE, 1.4, 8),
        ("LangGraph saver, Postgres", POSTGRES, 2.2, 15),
        ("Workflow SDK, world-local", FILE, 6, 7),
        ("Workflow SDK, world-postgres", POSTGRES, 6, 20),
        ("Restate", POSTGRES, 1.6, 5),
    )
    for peer, ours, *limits in wanted:
        for count, limit in zip((1, 16), limits, strict=True):
            words = f"{ours}: steps of 1 KB, {COUNTS[count]}, to {peer}"
            where = ("append", "steps 1 KB")
            yield Budget(words, "≥", limit, "x", (*where, ours, COUNTS[count]), (*where, peer, COUNTS[count]))


def _bytes() -> Iterator[Budget]:
    stored, blocks, local = ("append", "stored 1 KB"), "bytes of disk blocks", "Workflow SDK, world-local"
    yield Budget(
        f"{FILE}: bytes of a 1 KB step", "≤", 1.15 * 1024, "bytes", (*stored, FILE, "bytes"), digits=0
    )
    yield Budget(
        f"{SQLITE}: bytes of a 1 KB step", "≤", 1.5 * 1024, "bytes", (*stored, SQLITE, "bytes"), digits=0
    )
    wal = (*stored, POSTGRES, "bytes of WAL")
    yield Budget(f"{POSTGRES}: WAL of a 1 KB step", "≤", 1.6 * 1024, "bytes", wal, digits=0)
    words = f"{FILE}: disk blocks of a 1 KB step, to {local}"
    yield Budget(words, "≤", 0.1, "x", (*stored, FILE, blocks), (*stored, local, blocks))
    for ours, peer in ((SQLITE, "DBOS, SQLite"), (POSTGRES, "DBOS, Postgres")):
        words = f"{ours}: bytes of a 1 KB step, to {peer}"
        yield Budget(words, "≤", 0.67, "x", (*stored, ours, "bytes"), (*stored, peer, "bytes"))
    cpu = ("append", "cpu 1 KB", POSTGRES, COUNTS[16])
    yield Budget(f"{POSTGRES}: client CPU of a step, 16 sessions", "≤", 60, "µs", cpu, digits=0)
    group = ("append", "append 1 KB")
    words = f"{POSTGRES}: appends, 16 sessions, to 16 plain connections"
    yield Budget(words, "≥", 1.8, "x", (*group, POSTGRES, COUNTS[16]), (*group, "plain Postgres", COUNTS[16]))


def _rest() -> Iterator[Budget]:
    for world in ("file", "sqlite", "postgresql"):
        words = f"gateway, {world}: last byte to last byte beyond one append of the same 80 KB, paced"
        yield Budget(words, "≤", 5, "ms", ("gateway", "beyond", world, "80 KB, paced"), digits=1)
        for case in ("first text", "all text, median"):
            words = f"gateway, {world}: until a follower sees it, {case}"
            yield Budget(words, "≤", 50, "ms", ("gateway", "follower", world, case), digits=1)
    for name in ("claude-code, sqlite: the machine", "claude-code, sqlite, 100,000 events: the machine"):
        yield Budget(
            f"recovery beyond the harness's own start: {name}",
            "≤",
            1,
            "s",
            ("recovery", "again", name, "beyond it"),
        )
    for name in ("claude-code, sqlite", "claude-code, file", "claude-code, sqlite, 100,000 events"):
        yield Budget(f"attach: {name}", "≤", 0.3, "s", ("recovery", "attach", name, "the worker"))
    words = "bytes of a turn grow with its new content: k of bytes ~ calls^k"
    yield Budget(words, "≤", 1.1, "", ("scale", "growth", "bytes stored, by calls of a turn", "k"))
    for command in ("--help", "sessions", "sessions, file", "trace, 200 events", "trace, 200 events, file"):
        name = f"harness-durable {command}"
        yield Budget(
            f"{name}, start to exit",
            "≤",
            100,
            "ms",
            ("commandline", "commands", name, "start to exit"),
            digits=0,
        )


BUDGETS = (*_disk(), *_peers(), *_bytes(), *_rest())

_LONG = """\
Of the worker's CPU until it has attached, a fifth is for the 100,000 events: their snapshot of 13 MB is read,
its calls are told apart (not decoded), and those who write get copies of the rest. Where a harness has to be
started again, the adapter looks for what its transcript lacks among all calls of the log, which decodes them:
as much again. The rest is that of any session."""
_START = """\
Counted from the start of the worker's process: of its CPU until it has attached, 85 % is Python and what it
imports (a quarter of that pydantic with the settings, a sixth asyncio with ssl, socket and logging, a fifth
ours), and the rest opens the store, the session and the life. The HTTP client is imported afterwards."""
_GATEWAY = """\
All but the append takes the gateway 1.2 ms of CPU after the last byte: 0.7 ms to parse the last events, 0.2
ms to pack (all else was compressed while it arrived), 0.3 ms to send. What is more is the machine: the
append beside it is of the same bytes, but at another moment."""
_SYNCS = """\
The limits to bare syncs were set where a sync took 0.2 ms; on the disk of this run it took 0.13 ms, so that
what a World does beside it weighs more. In memory, where a sync is nothing, an append of the file World takes
31 to 47 µs of CPU; on the disk it takes 110 to 130 µs. The difference is the kernel's: a sync of a file that
grows commits the file system's journal, and a thread that waited for it has to be woken, and then the loop.
With 16 sessions and more the processors are busy with that; 2, 4 and 8 threads came out alike in three
rounds, 1 and 16 slower. (These are numbers of a few tries on a machine that others used as well.) Plain files
have a thread a session, and no loop that is told of anything. Whoever needs more than a few thousand steps a
second has them from the SQLite World, where many sessions share a sync."""
_READER = """\
A step of one session in SQLite is two trips to a thread, to the writer's and to a reader's: in memory an
append takes 55 µs of CPU and a step 157 µs. On the disk of this run the reading's trip takes 0.17 ms, more
than a sync (0.13 ms; the limits were set where it took 0.2 ms). With 64 sessions a step takes 43 µs of CPU,
22,500 times a second: that is one interpreter that never rests. (In memory 35 µs; what is said of memory is
of one try each, on a machine that others used as well.)"""
_CHAIN = """\
A step of one session in Postgres is a chain: us, a server process, the disk, us, another server process,
us, in all 0.5 ms, of which the sync is 0.13 ms and the CPU of ours 0.2 ms. Of the server's CPU the append's
statement has 0.08 ms (a bare insert: 0.05 ms) and the reading's 0.05 ms. So little of it is the disk that a
faster disk (the limits were set on one whose sync took 0.2 ms) brings peers nearer that wait for it more."""
_SHARE = """\
With 16 sessions a step takes 44 µs of CPU here and 70 to 100 µs in the server (plain Postgres: 78 and 105
to 135 µs; the server's measured at another time, on processors that others used). That is one process
here and two of the server, which keep both processors busy; what the group saves is the sync, and on a
disk whose sync takes 0.13 ms (the limits were set where it took 0.2 ms) there is less to save. Of ours 17
µs are our own Python; the rest is asyncpg, the event loop and the kernel. A second connection for appends
was tried, and gave nothing."""
_COMMAND = """\
Counted in instructions of the processor, `sessions` is 8 % Python's own start, 25 % click (with re, typing
and inspect), 22 % asyncio (with ssl, socket and logging), 22 % anyio, 8 % msgspec, hashlib and json, and 14 %
ours: the World and the command. All but 3 % of it is imports. In `trace` of 200 events ours is 27 %, and 8 %
are the events themselves. Only without asyncio, anyio or click would it be much less."""
WHY: dict[str, str] = {
    "recovery beyond the harness's own start: claude-code, sqlite, 100,000 events": _LONG,
    "attach: claude-code, sqlite, 100,000 events": _LONG,
    "attach": _START,
    "harness-durable, file: appends of 1 KB": _SYNCS,
    "harness-durable, file: steps of 1 KB": _SYNCS,
    "harness-durable, SQLite: steps of 1 KB": _READER,
    "gateway, file: last byte": _GATEWAY,
    "gateway, sqlite: last byte": _GATEWAY,
    "gateway, postgresql: last byte": _GATEWAY,
    "harness-durable, Postgres: steps of 1 KB, 1 session": _CHAIN,
    "harness-durable, Postgres: steps of 1 KB": _SHARE,
    "harness-durable, Postgres: client CPU": _SHARE,
    "harness-durable, Postgres: appends, 16 sessions": _SHARE,
    "harness-durable trace": _COMMAND,
    "harness-durable sessions": _COMMAND,
}
"""By how the words of a budget begin: what its profile says where it is missed."""


def verdicts(report: Report) -> list[Verdict]:
    """Each budget with what was measured."""
    found: list[Verdict] = []
    for budget in BUDGETS:
        over = _series(report, budget.over)
        if budget.under is None:
            found.append(Verdict(budget, stat(over.values) if over else None))
        else:
            found.append(Verdict(budget, ratio(over, _series(report, budget.under))))
    return found


def why(words: str) -> str:
    return next((reason for start, reason in WHY.items() if words.startswith(start)), "")


def _series(report: Report, place: tuple[str, str, str, str]) -> Series | None:
    scenario, name, subject, case = place
    result = report.results.get(scenario)
    table = next((t for t in result.tables if t.name == name), None) if result else None
    return table.find(subject, case) if table else None
