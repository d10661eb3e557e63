"""How fast is a durable step, beside the disk and beside what people would use instead.

A step appends one result and reads it back from the store. What ratios to the disk are against is measured in
each driver's own process, right before and after it: appends of 1 KB with an fdatasync, by one thread.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench.driving import Answer, Driver, Failed, Server, Stored, driver, folder, on_disk
from bench.environments import OURS, Environment, Missing, environment
from bench.measure import Options, Result, Table, interleaved
from bench.subjects import NAMES, SUBJECTS, Subject

NAME = "append"
SESSIONS = (1, 16, 64)
SIZES = {"1 KB": 1024, "30 KB": 30 * 1024}
SECONDS = 0.6


class Scene(NamedTuple):
    """What a run needs everywhere: where the subjects' environments are, and where the numbers go."""

    result: Result
    scratch: Path
    server: Server | None
    places: dict[str, Environment]

    def table(self, name: str) -> Table:
        return next(each for each in self.result.tables if each.name == name)


def run(options: Options) -> Result:
    rounds = options.rounds or (1 if options.quick else 4)
    result = Result(NAME, rounds, quick=options.quick)
    chosen = options.of(NAMES)
    places = _places(chosen, result, options)
    for size in SIZES:
        result.tables += _tables(size)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hd-bench-")))
        server = None
        if any(each.store == "postgresql" for each in SUBJECTS if each.name in places):
            server = Server()
            stack.callback(server.close)
            result.versions["PostgreSQL"] = server.version()
        scene = Scene(result, scratch, server, places)
        for number, name in interleaved([name for name in chosen if name in places], rounds):
            options.say(f"append: round {number + 1} of {rounds}: {name}")
            for size in list(SIZES)[: 2 if number < max(1, rounds - 2) else 1]:
                try:
                    _measure(scene, SUBJECTS[NAMES.index(name)], size)
                except Failed as why:
                    options.say(f"append: {name} failed: {why}")
                    result.missing.setdefault(name, f"failed in a round: {str(why)[:200]}")
    for table in result.tables:
        table.sort(NAMES)
    return result


def _places(chosen: Sequence[str], result: Result, options: Options) -> dict[str, Environment]:
    places: dict[str, Environment] = {}
    for subject in (each for each in SUBJECTS if each.name in chosen):
        try:
            places[subject.name] = OURS if subject.kind is None else environment(subject.kind)
        except Missing as why:
            options.say(f"append: {why}")
            result.missing[subject.name] = str(why)
            continue
        result.versions |= places[subject.name].versions
        result.guarantees[subject.name] = subject.guarantee
    return places


def _tables(size: str) -> list[Table]:
    return [
        Table(f"steps {size}", f"Steps of {size}", "steps a second", True, digits=0),
        Table(f"step {size}", f"Steps of {size}, to bare syncs of the disk", "x", True, digits=2),
        Table(f"append {size}", f"Appends of {size} alone, to bare syncs of the disk", "x", True, digits=2),
        Table(
            f"strict {size}",
            f"Intent, outcome of {size}, and reading it back, to bare syncs of the disk",
            "x",
            True,
            digits=2,
        ),
        Table(f"cpu {size}", f"CPU of the client for a step of {size}", "µs", False, digits=0),
        Table(f"stored {size}", f"What a step of {size} leaves behind", "a step", False, digits=2),
    ]


def _measure(scene: Scene, subject: Subject, size: str) -> None:
    """One round of one subject with one size: steps in a store of its own, then the rest in another."""
    with _started(scene, subject, size) as (started, stored):
        before, steps = stored(), 0
        for sessions in SESSIONS:
            if "step" in started.ready:
                answer = started.ask("step", sessions, SECONDS)
                steps += answer.steps
                _keep(scene, subject, "step", size, sessions, answer)
        more = [what for what in started.ready if what != "step"]
        started.close()
        if steps:
            _left(scene.table(f"stored {size}"), subject, before, stored(), steps)
    if more:
        with _started(scene, subject, size) as (started, _):
            for what in more:
                for sessions in SESSIONS:
                    _keep(scene, subject, what, size, sessions, started.ask(what, sessions, SECONDS))


@contextlib.contextmanager
def _started(scene: Scene, subject: Subject, size: str) -> Generator[tuple[Driver, Callable[[], Stored]]]:
    """A driver with a new store, and a look at what is in there."""
    with folder(scene.scratch) as place, ExitStack() as stack:
        stored = partial(on_disk, place)
        if subject.store == "postgresql" and scene.server is not None:
            store = scene.server.fresh()
            stack.callback(scene.server.drop, store)
            stored = partial(scene.server.stored, store)
        else:
            store = f"{subject.store}:{place / ('store.db' if subject.store == 'sqlite' else 'store')}"
        where = scene.places[subject.name]
        yield stack.enter_context(driver(subject.script, where, store, SIZES[size], place)), stored


def _keep(scene: Scene, subject: Subject, what: str, size: str, sessions: int, answer: Answer) -> None:
    case = f"{sessions} session{'s' * (sessions > 1)}"
    scene.table(f"{what} {size}").add(subject.name, case, answer.rate / answer.bare)
    if what == "step":
        scene.table(f"steps {size}").add(subject.name, case, answer.rate)
        scene.table(f"cpu {size}").add(subject.name, case, answer.cpu / max(1, answer.steps) * 1e6)


def _left(table: Table, subject: Subject, before: Stored, after: Stored, steps: int) -> None:
    if subject.reserves:
        return
    table.add(subject.name, "bytes", (after.size - before.size) / steps)
    table.add(subject.name, "bytes of disk blocks", (after.allocated - before.allocated) / steps)
    if subject.store == "postgresql":
        table.add(subject.name, "bytes of WAL", (after.wal - before.wal) / steps)
    else:
        table.add(subject.name, "files", (after.files - before.files) / steps)
