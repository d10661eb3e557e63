"""Every adapter keeps every promise, with its real harness: ours, and the smallest one, which comes from
outside by an entry point. In a short run each promise is tried with one of them; with
``HARNESS_DURABLE_CRASH=full`` with all.

The suite itself must find an adapter out that breaks one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from harness_durable import registry
from harness_durable.adapter import Adapter
from harness_durable.testing.adapters import PROMISES, Promise, Subject, check_promise

pytestmark = pytest.mark.slow

TOY = Path(__file__).with_name("toy")
ADAPTERS = ("claude-code", "codex", "opencode", "pi", "toy")
FULL = os.environ.get("HARNESS_DURABLE_CRASH") == "full"
CASES = [
    pytest.param(adapter, promise, id=f"{adapter}-{promise.id}")
    for place, promise in enumerate(PROMISES)
    for adapter in (ADAPTERS if FULL else (ADAPTERS[place % len(ADAPTERS)],))
]


def bring_in(toy: Path, monkeypatch: pytest.MonkeyPatch, old: str = "", new: str = "") -> None:
    """A distribution with the smallest adapter, in which ``old`` is ``new``."""
    about = toy / "toy_adapter-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-adapter\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[harness_durable.adapters]\ntoy = toy_adapter:Toy\n")
    for source in TOY.glob("*.py"):
        (toy / source.name).write_text(source.read_text())
    adapter = (toy / "toy_adapter.py").read_text()
    assert adapter.count(old) == 1 or not old
    (toy / "toy_adapter.py").write_text(adapter.replace(old, new) if old else adapter)
    monkeypatch.delitem(sys.modules, "toy_adapter", raising=False)
    monkeypatch.setattr(sys, "path", [str(toy), *sys.path])
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(toy), os.environ.get("PYTHONPATH", "")]).rstrip(":")
    )


@pytest.mark.parametrize(("adapter", "promise"), CASES)
async def test_an_adapter_keeps_its_promise(
    adapter: str, promise: Promise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if adapter == "toy":
        bring_in(tmp_path / "toy", monkeypatch)
    else:
        ours: Adapter = registry.load("adapter", adapter)()
        await ours.install(None, lambda _: None)
    result = await check_promise(promise, Subject(adapter), tmp_path)
    assert (result.ok, result.tried) == (True, True), result.detail
    assert set(os.listdir(tmp_path)) <= {"toy"}, "something was left behind"  # noqa: PTH208


MIRRORS = "await self.ctx.journal.transcript_appended(self.ctx.life, {FILE: [line.encode()]}, offset=end)"


@pytest.mark.parametrize(
    ("promise", "old", "new", "found"),
    [
        pytest.param("A3", MIRRORS, "pass", "the first message is not once", id="mirrors-nothing"),
        pytest.param(
            "A4",
            "verdict = await admit(ctx, call, tool)",
            'return {"run": True}',
            "the call was never released",
            id="has-no-barrier",
        ),
        pytest.param(
            "A8", "    if missing:", "    if not missing:", "a worker ended with 1", id="lets-calls-dangle"
        ),
        pytest.param(
            "A5", "return custom_tool(tool)", "return tool", "its effect happened 0 times", id="other-names"
        ),
    ],
)
async def test_an_adapter_that_breaks_a_promise_is_found_out(
    promise: str, old: str, new: str, found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring_in(tmp_path / "toy", monkeypatch, old, new)
    broken = next(one for one in PROMISES if one.id == promise)
    result = await check_promise(broken, Subject("toy"), tmp_path)
    assert not result.ok
    assert found in result.detail
