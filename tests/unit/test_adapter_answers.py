"""Answers out of the reason that a person gives with a yes."""

from __future__ import annotations

import pytest

from harness_durable_adapters.common.answers import lines


@pytest.mark.parametrize(
    ("reason", "count", "answers"),
    [
        ("red\nblue", 2, ["red", "blue"]),
        ("red", 3, ["red", "red", "red"]),
        (" red \n\n blue\ngreen", 2, ["red", "blue"]),
        ("", 1, ["yes"]),
        ("red", 0, []),
    ],
)
def test_each_line_answers_a_question_and_the_last_one_all_that_are_left(
    reason: str, count: int, answers: list[str]
) -> None:
    assert lines(reason, count) == answers
