"""Tables of what was measured, as text. The page uses the same ones."""

from __future__ import annotations

from collections.abc import Sequence

from bench.measure import Result, Stat, Table, ratio, stat


def cell(found: Stat | None, digits: int) -> str:
    """The median, and in brackets the least and the most of the rounds."""
    if found is None:
        return "–"
    if found.rounds == 1 or found.least == found.most:
        return number(found.median, digits)
    spread = f"{number(found.least, digits)}–{number(found.most, digits)}"
    return f"{number(found.median, digits)} ({spread})"


def number(value: float, digits: int) -> str:
    return f"{value:,.{digits}f}"


def rows(table: Table) -> list[list[str]]:
    """The head, and a row for each subject."""
    found = [["", *table.cases]]
    for subject in table.subjects:
        cells = [table.find(subject, case) for case in table.cases]
        found.append([subject, *(cell(stat(c.values) if c else None, table.digits) for c in cells)])
    return found


def against(table: Table) -> list[list[str]]:
    """The same, as ratios to the table's base; empty without one."""
    if not table.base:
        return []
    found = [[f"to {table.base}", *table.cases]]
    for subject in table.subjects:
        if subject != table.base:
            ratios = [ratio(table.find(subject, c), table.find(table.base, c)) for c in table.cases]
            found.append([subject, *(cell(each, 2) for each in ratios)])
    return found


def markdown(lines: Sequence[Sequence[str]]) -> str:
    head, *body = lines
    rule = ["---", *("---:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *body))


def plain(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            text.ljust(width) if place == 0 else text.rjust(width)
            for place, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def unit(table: Table) -> str:
    """How to read the numbers; empty where each column or row says it."""
    if not table.unit:
        return ""
    return f"{table.unit}, {'more' if table.more_is_better else 'less'} is better"


def shown(result: Result) -> str:
    """A scenario for a terminal."""
    blocks = [f"{result.scenario}: {result.rounds} rounds, {result.seconds:.0f} s"]
    for table in result.tables:
        if table.series:
            blocks.append(f"{table.title} ({unit(table) or 'units as named'})\n{plain(rows(table))}")
            if table.base:
                blocks.append(plain(against(table)))
            blocks += table.notes
    blocks += [f"{name}: not measured; {why}" for name, why in result.missing.items()]
    return "\n\n".join([*blocks, *result.notes]) + "\n"
