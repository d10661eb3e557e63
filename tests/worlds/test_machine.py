"""Random histories on every World, compared with a list. ``HARNESS_DURABLE_EXAMPLES`` asks for more."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from harness_durable.errors import HarnessDurableError
from harness_durable.testing.world_machine import machine_for
from harness_durable.testing.worlds import BrokenPromise
from tests.worlds import subjects

EXAMPLES = int(os.environ.get("HARNESS_DURABLE_EXAMPLES", "50"))

HISTORIES = settings(
    max_examples=EXAMPLES,
    stateful_step_count=30,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.mark.timeout(max(180, EXAMPLES * 3))
@pytest.mark.parametrize("world", subjects.URLS)
def test_random_histories_agree_with_a_list(world: str, tmp_path: Path) -> None:
    """C079: whatever the wall clocks say, a session has one owner."""
    run_state_machine_as_test(machine_for(subjects.subject(world, tmp_path)), settings=HISTORIES)


def test_random_histories_agree_with_a_list_on_the_reference(tmp_path: Path) -> None:
    run_state_machine_as_test(machine_for(subjects.plain(tmp_path)), settings=HISTORIES)


@pytest.mark.parametrize("mutant", ["no-cas", "no-fence", "release-any", "no-healing", "no-outbox"])
def test_random_histories_find_what_is_wrong(mutant: str, tmp_path: Path) -> None:
    wrong = machine_for(subjects.plain(tmp_path, mutant))
    enough = settings(HISTORIES, max_examples=200, phases=[Phase.generate], print_blob=False)
    with pytest.raises((BrokenPromise, HarnessDurableError)):
        run_state_machine_as_test(wrong, settings=enough)
