"""The promises of an adapter, A1 to A14, and how each is checked with the real harness.

    for result in await check_adapter(Subject("my-harness")):
        print(result.id, result.ok, result.detail)

The harness must be installed (``harness-durable install NAME``); no key, no network and no test framework are
needed, since a scripted model answers. What surprises: workers are processes of their own, so the adapter is
found by its name: register it by an entry point first. What it declares that it cannot do is not tried, and
``tried`` is false.
"""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from harness_durable.testing.adapters import deaths, turns
from harness_durable.testing.adapters.bench import Bench, BrokenPromise, NotOffered, Subject, bench
from harness_durable.testing.checks import CheckResult

__all__ = ["PROMISES", "Promise", "Subject", "check_adapter", "check_promise"]

Check = Callable[[Bench], Awaitable[str]]
"""Returns what it saw; raises ``BrokenPromise``, or lets through what the adapter raised."""


class Promise(msgspec.Struct, frozen=True):
    id: str
    text: str
    check: Check


PROMISES: tuple[Promise, ...] = (
    Promise("A1", "What it declares fits, and its harness is found", turns.what_is_declared_fits),
    Promise("A2", "What it relies on holds on this machine", turns.what_it_relies_on_holds),
    Promise("A3", "A message is delivered once; the next goes on from it", turns.a_conversation_goes_on),
    Promise("A4", "A built-in call is released, runs once, has its result", turns.a_call_is_recorded),
    Promise("A5", "A custom tool runs in the worker, once", turns.a_custom_tool_runs_here),
    Promise("A6", "No call runs before its release is durable", deaths.nothing_runs_before_its_release),
    Promise("A7", "A released call without an outcome is unknown", deaths.a_lost_release_is_unknown),
    Promise("A8", "So is one that was cut off; it is not repeated", deaths.a_call_that_is_cut_off_is_unknown),
    Promise("A9", "So is a custom tool's", deaths.a_custom_tool_that_is_cut_off_is_unknown),
    Promise("A10", "A recorded result outlives the machine", deaths.a_result_outlives_the_machine),
    Promise("A11", "A running command outlives its worker", deaths.a_command_outlives_its_worker),
    Promise("A12", "A stop ends the turn and what runs", turns.a_stop_is_heeded),
    Promise("A13", "A steer reaches the running turn once", turns.a_steer_arrives),
    Promise("A14", "A person's no outlives who asked", deaths.a_persons_no_outlives_who_asked),
)


async def check_promise(promise: Promise, subject: Subject, root: Path | None = None) -> CheckResult:
    """One promise, in a folder of its own: below ``root``, or a temporary one."""
    with tempfile.TemporaryDirectory(
        prefix=f"check-{promise.id}-", dir=root, ignore_cleanup_errors=True
    ) as folder:
        try:
            async with bench(subject, Path(folder)) as one:
                return CheckResult(promise.id, promise.text, True, await promise.check(one))
        except NotOffered:
            detail = "the adapter declares that its harness cannot do this"
            return CheckResult(promise.id, promise.text, True, detail, tried=False)
        except BrokenPromise as error:
            return CheckResult(promise.id, promise.text, False, str(error))
        except Exception as error:  # whatever an adapter raises is a result, too
            where = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"
            return CheckResult(promise.id, promise.text, False, what)


async def check_adapter(subject: Subject) -> list[CheckResult]:
    """Every promise, one row each. Takes a minute or two."""
    return [await check_promise(promise, subject) for promise in PROMISES]
