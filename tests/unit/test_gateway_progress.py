"""What is told of a model call while it runs, and how often."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from harness_durable import clock
from harness_durable.gateway.progress import INTERVAL, TAIL, Progress, Reporter
from tests.unit.test_journal import FakeClock


@pytest.fixture
def time() -> Generator[FakeClock]:
    found = FakeClock()
    with clock.use(found):
        yield found


def reporter() -> tuple[Reporter, list[Progress]]:
    told: list[Progress] = []
    return Reporter("m1", None, told.append), told


def test_text_is_told_at_once_and_then_once_an_interval(time: FakeClock) -> None:
    found, told = reporter()
    for _ in range(10):
        found.add("x")
        time.now += INTERVAL / 4
    assert [len(each.text) for each in told] == [1, 5, 9]


def test_the_last_words_are_told_when_something_else_arrives(time: FakeClock) -> None:
    """What a model says before a long tool input must not wait for the input's end."""
    found, told = reporter()
    found.add("I will ")
    found.add("write it.")
    for _ in range(3):
        time.now += 2 * INTERVAL
        found.add("")
    assert [each.text for each in told] == ["I will ", "I will write it."]


def test_a_long_answer_is_told_by_its_end(time: FakeClock) -> None:
    found, told = reporter()
    found.add("a" * TAIL)
    time.now += 2 * INTERVAL
    found.add("b")
    found.end()
    assert [(len(each.text), each.size, each.done) for each in told] == [
        (TAIL, TAIL, False),
        (TAIL, TAIL + 1, False),
        (TAIL, TAIL + 1, True),
    ]
