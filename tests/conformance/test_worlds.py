"""Every World keeps every promise. One test for each check, so that a failure names what is broken; and no
check leaves anything in the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness_durable.testing.worlds import PROMISES, Check, run_check
from tests.worlds import subjects

CHECKS = [
    pytest.param(check, id=f"{promise.id}-{getattr(check, '__name__', '')}")
    for promise in PROMISES
    for check in promise.checks
]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("world", subjects.URLS)
async def test_a_world_keeps_its_promise(world: str, check: Check, tmp_path: Path) -> None:
    assert await run_check(check, subjects.subject(world, tmp_path))
    assert subjects.LEFT[world](tmp_path) == subjects.EMPTY[world]
