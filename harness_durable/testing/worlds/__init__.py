"""The promises of a World, W1 to W14, and how each is checked.

    async for result in check_world("sqlite:agents.db"):
        print(result.id, result.ok, result.detail)

Each check runs on an app of its own, opens several instances, and starts, stops and kills second processes.
What surprises: a promise counts as kept only if every one of its checks ran to its end; what could not be
tried here (a torn disk write without a hook for it) is said in ``detail``, and ``tried`` is false.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable

import msgspec

from harness_durable.testing.checks import CheckResult
from harness_durable.testing.worlds import contents, failures, fencing, liveness, logs, sharing
from harness_durable.testing.worlds.bench import Bench, Faults, FillsUp, Subject, Untried, bench, faults_of
from harness_durable.testing.worlds.process import BrokenPromise

Check = Callable[[Bench], Awaitable[str]]
"""Returns what it saw; raises ``BrokenPromise``, or lets through what the World raised."""


class Promise(msgspec.Struct, frozen=True):
    id: str
    text: str
    checks: tuple[Check, ...]


PROMISES: tuple[Promise, ...] = (
    Promise(
        "W1",
        "An append is all or nothing, and durable on return. Dense seq; readers see a prefix",
        (
            logs.appends_are_whole_and_dense,
            logs.nothing_is_stored_of_what_is_refused,
            logs.racing_processes_leave_no_hole,
        ),
    ),
    Promise(
        "W2",
        "An append by a superseded owner raises WriterFenced, writes nothing, leaves no hole, at any "
        "interleaving and also after it was stopped for hours",
        (
            fencing.a_superseded_owner_is_refused,
            fencing.a_take_over_in_the_middle_of_writing,
            fencing.an_owner_stopped_past_its_lease_is_fenced,
            fencing.a_holder_that_claims_again_gets_a_new_epoch,
            fencing.a_release_alone_fences_nobody,
            fencing.a_deleted_sessions_writer_is_fenced_from_the_next,
        ),
    ),
    Promise(
        "W3",
        "Of N racing claimers exactly one wins. Epochs only grow, also across crash, restart and reopening",
        (fencing.one_claimer_wins, fencing.one_claimer_by_name_wins, fencing.epochs_only_grow),
    ),
    Promise(
        "W4",
        "Write-once keys: a second append with the same key writes nothing and finds the first, "
        "also under races",
        (logs.a_key_is_written_once_under_a_race, logs.a_session_is_created_once),
    ),
    Promise(
        "W5",
        "An expected_head that is no longer the head raises Conflict with the records in between",
        (logs.a_moved_head_is_a_conflict,),
    ),
    Promise(
        "W6",
        "The session of a process killed with SIGKILL is claimable within 1 s, of a vanished host when its "
        "lease ends. A live owner is never displaced before that, unless a take-over is asked for by name",
        (
            liveness.a_killed_owner_frees_its_session_within_a_second,
            liveness.a_live_owner_is_not_displaced,
            liveness.renewing_keeps_a_session,
            liveness.a_worker_that_nobody_knows_cannot_renew,
            liveness.leaving_frees_at_once,
            fencing.a_take_over_needs_to_be_asked_for,
            fencing.a_claim_says_whether_the_previous_owner_may_live,
        ),
    ),
    Promise(
        "W7",
        "claim offers only this app's sessions that are due and free; "
        "parked ones are not touched by restarts",
        (
            liveness.only_due_and_free_sessions_are_offered,
            liveness.a_row_parks_and_wakes_with_its_append,
            liveness.a_row_parks_and_wakes_without_records,
            liveness.a_release_can_put_a_session_off,
            liveness.what_is_due_at_once_is_offered_as_it_came,
            liveness.parked_sessions_outlive_their_worker_untouched,
        ),
    ),
    Promise(
        "W8",
        "Bytes come back as they went in",
        (
            contents.records_come_back_byte_for_byte,
            contents.blobs_come_back_byte_for_byte,
            contents.snapshots_and_progress_come_back,
        ),
    ),
    Promise(
        "W9",
        "wait returns within 50 ms of an append in the same process and 250 ms of one elsewhere, "
        "and never misses one",
        (
            contents.waiting_wakes_soon,
            contents.waiting_misses_nothing,
            contents.due_sessions_wake_workers,
        ),
    ),
    Promise(
        "W10",
        "After a kill or power loss at any byte of an append, reopening finds the last whole batch and loses "
        "nothing before it. A damaged record is reported with its offset and hides no neighbour",
        (
            failures.reopening_finds_everything,
            failures.a_kill_while_writing_loses_no_whole_append,
            failures.a_torn_append_is_cut_off,
            failures.damage_is_reported_and_hides_no_neighbour,
        ),
    ),
    Promise(
        "W11",
        "If an append's answer was lost, the append is settled (it happened or it did not), never doubled",
        (
            logs.the_same_records_again_are_not_doubled,
            logs.an_answer_lost_to_a_kill_is_settled,
            logs.a_refused_writer_is_not_settled_as_written,
            logs.a_fenced_writer_learns_that_it_had_written,
        ),
    ),
    Promise(
        "W12",
        "Disk full, I/O error, database gone: StorageUnavailable, nothing half-written; when the store is "
        "back, work continues without a restart",
        (
            failures.a_full_disk_is_an_error_and_passes,
            failures.a_broken_store_is_an_error_and_passes,
        ),
    ),
    Promise(
        "W13",
        "Many processes on one World at once; several apps never see or run each other's sessions",
        (sharing.apps_do_not_see_each_other, sharing.many_processes_share_one_store),
    ),
    Promise(
        "W14",
        "export and import move a session between Worlds without loss; delete removes its blobs too",
        (
            sharing.sessions_move_without_loss,
            sharing.blobs_can_come_before_their_session,
            sharing.deleting_leaves_nothing,
        ),
    ),
)


async def run_check(check: Check, subject: Subject) -> str:
    """One check on a fresh app; what it saw. Raises ``BrokenPromise`` or what the World raised."""
    async with bench(subject) as place:
        return await check(place)


async def check_promise(promise: Promise, subject: Subject) -> CheckResult:
    """All checks of a promise; ends at the first that fails."""
    seen: list[str] = []
    for check in promise.checks:
        try:
            seen.append(await run_check(check, subject))
        except Exception as error:  # a report has a row for whatever a World does wrong
            sentence = str(error) if isinstance(error, BrokenPromise) else repr(error)
            return CheckResult(promise.id, promise.text, False, f"{name_of(check)}: {sentence}")
    tried = not any(isinstance(each, Untried) for each in seen)
    return CheckResult(promise.id, promise.text, True, "; ".join(seen), tried)


async def check_world(
    url: str,
    *,
    opener: str = "harness_durable.worlds:open_world",
    faults: Faults | None = None,
    slack: float = 1.0,
) -> AsyncGenerator[CheckResult]:
    """Check the World behind ``url``: one result for each promise, in order, as each is done.

    ``opener`` is the ``module:function`` that opens it, for a World that is not registered yet; second
    processes import it, too. ``faults`` is what its module offers, unless given. ``slack`` multiplies all
    time limits: 1 on a quiet machine, more in CI.
    """
    subject = Subject(url, opener, faults or faults_of(url, opener), slack)
    for promise in PROMISES:
        yield await check_promise(promise, subject)


def name_of(check: Check) -> str:
    """The check's name as words."""
    return str(getattr(check, "__name__", "check")).replace("_", " ")


__all__ = (
    "PROMISES",
    "Bench",
    "BrokenPromise",
    "Check",
    "Faults",
    "FillsUp",
    "Promise",
    "Subject",
    "Untried",
    "check_promise",
    "check_world",
    "faults_of",
    "name_of",
    "run_check",
)
