"""The page says what the numbers say, and the tools that make it count right."""

from __future__ import annotations

import pytest

from bench.__main__ import RESULTS, load
from bench.budgets import BUDGETS, Budget, verdicts
from bench.measure import Machine, Report, Result, Series, Table, exponent, interleaved, ratio, stat
from bench.page import PAGE, page
from bench.recovery import past
from bench.subjects import NAMES
from bench.tables import rows
from harness_durable.fold import fold
from tests.view.logs import entries


def test_the_page_is_the_one_that_its_numbers_give() -> None:
    assert PAGE.read_text() == page(load(RESULTS)), "make it anew: python -m bench.page"


def test_a_ratio_is_of_the_values_of_one_round() -> None:
    over, under = Series("a", "x", [2.0, 40.0, None, 9.0]), Series("b", "x", [1.0, 10.0, 1.0, None])
    found = ratio(over, under)
    assert found is not None
    assert (found.median, found.least, found.most, found.rounds) == (3.0, 2.0, 4.0, 2)


def test_what_was_never_measured_is_no_number() -> None:
    assert stat([None, None]) is None
    assert ratio(None, Series("b", "x", [1.0])) is None


def test_every_subject_takes_its_turn_in_every_round() -> None:
    turns = list(interleaved(["a", "b", "c"], 4))
    assert all({name for number, name in turns if number == n} == {"a", "b", "c"} for n in range(4))
    assert len({tuple(name for number, name in turns if number == n) for n in range(4)}) > 1


@pytest.mark.parametrize("k", [0.0, 1.0, 2.0])
def test_the_exponent_of_a_curve(k: float) -> None:
    assert exponent([10, 30, 100], [5 * size**k for size in (10, 30, 100)]) == pytest.approx(k)


def report(ours: float, peer: float) -> Report:
    steps = Table("steps 1 KB", "", "", True)
    budget = next(b for b in BUDGETS if b.under is not None and b.under[2] == "DBOS, Postgres")
    steps.add(budget.over[2], budget.over[3], ours)
    steps.add("DBOS, Postgres", budget.over[3], peer)
    return Report(Machine("", 1, 1, "", "", ""), {"append": Result("append", 1, tables=[steps])})


def budget_of(found: Report) -> tuple[Budget, bool | None]:
    verdict = next(v for v in verdicts(found) if v.budget.under and v.budget.under[2] == "DBOS, Postgres")
    return verdict.budget, verdict.kept


def test_a_budget_is_kept_or_missed_by_its_median() -> None:
    assert budget_of(report(300, 100))[1] is True
    assert budget_of(report(299, 100))[1] is False
    assert budget_of(Report(Machine("", 1, 1, "", "", "")))[1] is None


def test_a_loss_is_shown_as_a_loss() -> None:
    text = page(report(299, 100))
    assert "**missed**" in text and "| 2.99 | **missed** |" in text


def test_budgets_name_subjects_that_there_are() -> None:
    for budget in BUDGETS:
        for place in (budget.over, budget.under):
            assert place is None or place[0] != "append" or place[2] in NAMES


def test_a_subject_that_could_not_be_had_is_told() -> None:
    found = report(1, 1)
    found.results["append"].missing["Restate"] = "there is no npm on this machine"
    assert "- Restate: **not measured**, there is no npm on this machine" in page(found)


def test_a_scenario_says_of_which_day_and_commit_it_is() -> None:
    found = report(1, 1)
    found.results["append"].date, found.results["append"].commit = "2026-01-02", "abc123"
    assert "on 2026-01-02 at commit abc123" in page(found)


@pytest.mark.parametrize("count", [100, 3000])
def test_the_past_of_a_session_that_is_to_be_recovered_is_settled(count: int) -> None:
    state = fold(entries(past(count)))
    assert count * 0.9 < state.seq <= count + 2
    assert state.turn is None and state.life is None


def test_a_table_shows_the_spread() -> None:
    table = Table("t", "", "", True, digits=0)
    for value in (3.0, 1.0, 2.0):
        table.add("us", "case", value)
    assert rows(table)[1] == ["us", "2 (1–3)"]
