"""What every scenario measures with: rounds in which all subjects take turns, and what is kept of them.

What surprises: only what was measured is kept, one value a round. Medians, spreads and ratios are made from
that when a table is shown, and a ratio is of two values of the same round, since both then met the same
neighbours on the machine.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterator, Sequence

import msgspec


class Series(msgspec.Struct):
    """Of one subject in one case: a value a round, ``None`` where it could not be had in that round."""

    subject: str
    case: str
    values: list[float | None] = []


class Table(msgspec.Struct):
    """Rows are subjects, columns are cases. ``unit`` is that of the values; ``base``: the subject that the
    others' ratios are against, "" for none. ``digits`` behind the point."""

    name: str
    title: str
    unit: str
    more_is_better: bool
    base: str = ""
    digits: int = 1
    series: list[Series] = []
    notes: list[str] = []

    def add(self, subject: str, case: str, value: float | None) -> None:
        """One more round's value."""
        found = self.find(subject, case)
        if found is None:
            found = Series(subject, case)
            self.series.append(found)
        found.values.append(None if value is None or not math.isfinite(value) else value)

    def find(self, subject: str, case: str) -> Series | None:
        return next((s for s in self.series if (s.subject, s.case) == (subject, case)), None)

    @property
    def subjects(self) -> list[str]:
        """In the order in which the scenario names them, whatever the order of the rounds was."""
        return list(dict.fromkeys(s.subject for s in self.series))

    @property
    def cases(self) -> list[str]:
        return list(dict.fromkeys(s.case for s in self.series))

    def sort(self, subjects: Sequence[str]) -> None:
        """Rows in this order from now on."""
        places = {name: place for place, name in enumerate(subjects)}
        self.series.sort(key=lambda each: places.get(each.subject, len(places)))


class Result(msgspec.Struct):
    """A scenario that was run. ``guarantees``: what is durable when a subject's step has returned.
    ``missing``: subjects that could not be had, and why. ``date`` and ``commit`` are of this run, since a
    report may have scenarios of several."""

    scenario: str
    rounds: int
    date: str = ""
    commit: str = ""
    seconds: float = 0.0
    load: tuple[float, float] = (0.0, 0.0)
    quick: bool = False
    versions: dict[str, str] = {}
    guarantees: dict[str, str] = {}
    missing: dict[str, str] = {}
    tables: list[Table] = []
    notes: list[str] = []


class Machine(msgspec.Struct):
    """Where it was run."""

    processor: str
    cores: int
    memory_gb: int
    kernel: str
    disk: str
    python: str


class Report(msgspec.Struct):
    """What ``bench/results.json`` holds."""

    machine: Machine
    results: dict[str, Result] = {}


class Stat(msgspec.Struct, frozen=True):
    """Of the rounds: the median, the least and the most, and how many there were."""

    median: float
    least: float
    most: float
    rounds: int


def stat(values: Sequence[float | None]) -> Stat | None:
    """``None`` when nothing was measured."""
    found = [value for value in values if value is not None]
    if not found:
        return None
    return Stat(statistics.median(found), min(found), max(found), len(found))


def ratio(over: Series | None, under: Series | None) -> Stat | None:
    """Of the values of the same rounds."""
    if over is None or under is None:
        return None
    pairs = zip(over.values, under.values, strict=False)
    return stat([a / b for a, b in pairs if a is not None and b])


def interleaved(names: Sequence[str], rounds: int, seed: int = 1) -> Iterator[tuple[int, str]]:
    """Round by round, each in an order of its own."""
    chance = random.Random(seed)
    for number in range(rounds):
        order = list(names)
        chance.shuffle(order)
        for name in order:
            yield number, name


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """k of cost ~ size^k: the slope of the logarithms, by least squares. 1 is linear."""
    x, y = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    return statistics.linear_regression(x, y).slope


class Options(msgspec.Struct, frozen=True):
    """Of one run. ``only``: parts of the names of the subjects that take part; all without."""

    quick: bool = False
    rounds: int | None = None
    only: tuple[str, ...] = ()
    say: Callable[[str], None] = print

    def of(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if not self.only or any(part in name for part in self.only)]
