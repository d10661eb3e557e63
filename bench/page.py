"""``python -m bench.page``: makes ``docs/benchmarks.md`` from ``bench/results.json``. A test sees to it that
the page in the repository is the one that its numbers give."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from bench.__main__ import RESULTS, SCENARIOS, load
from bench.budgets import Verdict, verdicts, why
from bench.measure import Report, Result, Table
from bench.tables import against, cell, markdown, number, rows, unit

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
TITLES = {
    "append": "A durable step",
    "turn": "A turn through a real harness",
    "gateway": "The gateway",
    "recovery": "Recovery",
    "scale": "Many sessions, long turns",
    "commandline": "The command line",
}
INTRO = """\
# Benchmarks

This page is made by `bench/page.py` from `bench/results.json`; nothing in it is written by hand. Every number
is the median of the rounds of one run, and in brackets are the least and the most of them. In a round all
subjects take turns in an order of its own, after a warm-up, each in a process of its own while no other one
is there. Times say more about the machine than about a program, so look at the ratios: each is of two values
of the same round. What is lost is shown as lost.
"""
HOW = """\
To measure again: `make bench` (half an hour on two cores), or `make bench QUICK=1` to see that it all runs.
One scenario: `make bench SCENARIOS=append`. Peers are installed from PyPI and npm into environments of their
own in the user's cache folder, at the versions below.
"""


def page(report: Report) -> str:
    blocks = [INTRO, "\n".join(_machine(report)), HOW, *_budgets(verdicts(report))]
    for name in SCENARIOS:
        if name in report.results:
            blocks += _scenario(name, report.results[name])
    return "\n".join(block.rstrip() + "\n" for block in blocks)


def _machine(report: Report) -> Iterator[str]:
    it = report.machine
    yield f"Measured on {it.processor}, {it.cores} cores, {it.memory_gb} GB of memory, Linux {it.kernel},"
    yield f"{it.disk}, Python {it.python}."
    if quick := [name for name in SCENARIOS if name in report.results and report.results[name].quick]:
        yield ""
        yield f"**Of few rounds only, so read nothing into the numbers: {', '.join(quick)}.**"


def _budgets(found: list[Verdict]) -> Iterator[str]:
    kept, missed = ([v for v in found if v.kept is flag] for flag in (True, False))
    yield "## What was promised"
    left = len(found) - len(kept) - len(missed)
    rest = f", {left} not measured" if left else ""
    yield f"Of {len(found)} budgets {len(kept)} are met, {len(missed)} missed{rest}."
    lines = [["budget", "wanted", "measured", ""]]
    for verdict in found:
        budget = verdict.budget
        wanted = f"{budget.op} {number(budget.limit, budget.digits)} {budget.unit}".rstrip()
        word = {True: "met", False: "**missed**", None: "not measured"}[verdict.kept]
        lines.append([budget.words, wanted, cell(verdict.found, budget.digits), word])
    yield markdown(lines)
    if missed:
        yield "Why some are missed:"
        reasons = {why(verdict.budget.words): verdict.budget.words for verdict in missed}
        told = (f"- {reason.replace(chr(10), chr(10) + '  ')}" for reason in reasons if reason)
        yield "\n".join(told) or "- Not looked into yet."


def _scenario(name: str, result: Result) -> Iterator[str]:
    yield f"## {TITLES[name]}"
    source = Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
    yield ast.get_docstring(ast.parse(source)) or ""
    load = f"load of the machine {result.load[0]:.1f} before and {result.load[1]:.1f} after"
    run = f"{result.rounds} rounds, {result.seconds:.0f} s, on {result.date} at commit {result.commit}"
    yield f"`python -m bench {name}`: {run}, {load}."
    for table in result.tables:
        yield from _table(table)
    if result.guarantees:
        yield "What is durable when a step has returned:"
        yield markdown([["", "guarantee"], *([name, text] for name, text in result.guarantees.items())])
    if result.missing:
        yield "\n".join(f"- {name}: **not measured**, {reason}" for name, reason in result.missing.items())
    if result.versions:
        yield "Versions: " + ", ".join(f"{name} {version}" for name, version in result.versions.items()) + "."
    yield from result.notes


def _table(table: Table) -> Iterator[str]:
    if not table.series:
        return
    yield f"### {table.title}"
    yield f"In {unit(table)}." if table.unit else ""
    yield markdown(rows(table))
    if table.base:
        yield markdown(against(table))
    yield from table.notes


def main() -> None:
    PAGE.write_text(page(load(RESULTS)), encoding="utf-8")


if __name__ == "__main__":
    main()
