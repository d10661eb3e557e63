"""The promises of a sandbox, S1 to S18, and how each is checked.

    results = await check_sandbox(make, Place(Path("/some/dir")))

``make`` gives a fresh sandbox as an async context manager, once for each check. No test framework is
needed. A promise is kept if all its checks ran to their end.
"""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from harness_durable.testing.checks import CheckResult
from harness_durable.testing.sandboxes import commands, ends, lives, relays
from harness_durable.testing.sandboxes.bench import Bench, BrokenPromise, Make, Place, bench

__all__ = ["PROMISES", "Make", "Place", "Promise", "check_promise", "check_sandbox"]

Check = Callable[[Bench], Awaitable[str]]
"""Returns what it saw; raises ``BrokenPromise``, or lets through what the sandbox raised."""


class Promise(msgspec.Struct, frozen=True):
    id: str
    text: str
    checks: tuple[Check, ...]


PROMISES: tuple[Promise, ...] = (
    Promise(
        "S1",
        "exec tells exit code, signal, stdout and stderr as they were",
        (commands.exit_codes_and_signals,),
    ),
    Promise(
        "S2",
        "exec leaves no process: past its timeout the command and its children are killed",
        (commands.a_time_out_kills_children, commands.a_command_leaves_nothing),
    ),
    Promise("S3", "Bytes go in and come out as they are, of any size", (commands.binary_streams,)),
    Promise(
        "S4",
        "Files of a life have the names and contents that were asked for, below its home",
        (
            commands.odd_file_names,
            commands.places_are_filled_in,
            commands.content_may_come_in_pieces,
        ),
    ),
    Promise("S5", "Nothing of the worker's environment is visible", (commands.nothing_is_inherited,)),
    Promise(
        "S6",
        "A life is where it was located, starts once, or says that its program is missing",
        (
            lives.a_life_is_located_before_it_starts,
            lives.a_missing_program_is_said_so,
            lives.a_life_starts_once,
        ),
    ),
    Promise(
        "S7",
        "A newer epoch takes a life over and cuts the older one off; others are refused, and cannot end it",
        (lives.epochs_are_refused_and_cut, ends.an_older_epoch_ends_nothing),
    ),
    Promise("S8", "Frames for stdin arrive whole, once, in order", (lives.frames_arrive_whole,)),
    Promise("S9", "Output can be read by offset, also by later workers", (lives.output_outlives_the_worker,)),
    Promise(
        "S10",
        "A request without an answer is held, and offered from its start to the next worker",
        (
            relays.an_answer_goes_through,
            relays.a_held_request_waits,
            relays.an_unanswered_request_is_offered_again,
        ),
    ),
    Promise(
        "S11",
        "An answer that was begun and not finished ends in a reset; a finished one does not",
        (relays.a_begun_answer_is_reset, relays.a_finished_answer_is_not_reset),
    ),
    Promise(
        "S12", "A running command survives its worker, and runs once", (lives.a_command_survives_the_worker,)
    ),
    Promise(
        "S13",
        "After shutdown or reap no process of the life is left, and no other life is touched",
        (ends.shutdown_leaves_nothing, ends.reap_leaves_nothing, ends.reap_spares_other_lives),
    ),
    Promise("S14", "A killed keeper takes its whole life along", (ends.a_killed_keeper_takes_all_along,)),
    Promise(
        "S15",
        "The harness's end is recorded, after all of its output",
        (lives.the_exit_is_recorded, lives.a_gone_life_is_said_to_be_gone),
    ),
    Promise("S16", "A life that nobody attends to ends after its ttl", (ends.an_orphaned_life_ends,)),
    Promise(
        "S17", "A server that the harness runs can be reached", (relays.a_server_of_the_harness_is_reached,)
    ),
    Promise(
        "S18",
        "The options of a session are settled once, and those that are not known are refused",
        (lives.options_are_settled_once,),
    ),
)


async def check_promise(promise: Promise, make: Make, place: Place) -> CheckResult:
    """All checks of one promise, each on a fresh sandbox."""
    seen: list[str] = []
    for check in promise.checks:
        try:
            async with bench(make, place) as one:
                seen.append(await check(one))
        except BrokenPromise as error:
            return CheckResult(promise.id, promise.text, False, str(error))
        except Exception as error:  # whatever a sandbox raises is a result, too
            where = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"
            return CheckResult(promise.id, promise.text, False, f"{check.__name__}: {what}")
    return CheckResult(promise.id, promise.text, True, "; ".join(seen))


async def check_sandbox(make: Make, place: Place | None = None) -> list[CheckResult]:
    """Every promise, one row each. Without ``place``, the checks share a temporary directory with the
    sandbox under the same path inside and outside."""
    if place is not None:
        return [await check_promise(promise, make, place) for promise in PROMISES]
    with tempfile.TemporaryDirectory() as directory:
        here = Place(Path(directory))
        return [await check_promise(promise, make, here) for promise in PROMISES]
