"""The driver on its ladder: start, attach, continue, give up; and what becomes of lives on the way."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from harness_durable.adapter import LifeContext, TurnEnd
from harness_durable.errors import (
    BadSetting,
    BadTool,
    HarnessDied,
    HarnessMissing,
    HarnessStuck,
    KeeperGone,
    SandboxUnavailable,
    StaleEpoch,
    WorkspaceMissing,
    WriterFenced,
)
from harness_durable.events import AgentSpec
from harness_durable.gateway import Gateway
from harness_durable.journal import Inbox
from harness_durable.policy import AGAIN, NOT_STARTED, UNKNOWN
from harness_durable.recovery import MAX_FRUITLESS
from harness_durable.runtime.lives import MAX_IN_VAIN
from harness_durable.sandbox import LifeRef, Link, Request
from harness_durable.world import Owner
from tests.runtime.kit import (
    Harness,
    Place,
    Script,
    Store,
    Works,
    accepted,
    completes,
    driven,
    driver,
    ends,
    equipped,
    raises,
    state_of,
    turn_of,
)
from tests.unit.memory_world import OTHER, OWNER
from tests.unit.session_kit import AGENT, SESSION, asked, begun, taken

THIRD = Owner("worker-c", "here", 3)


# ------------------------------------------------------------------------------------------ start


async def test_a_message_that_is_taken_back_at_the_last_moment_starts_nothing() -> None:
    world, harness, place = Store(), Harness(), Place()
    inbox = await accepted(world, "m-1")
    hands = await driver(world, equipped(harness, place))

    async def withdraw() -> None:
        await inbox.withdraw("m-1", "anna")

    world.between = withdraw
    await hands.run()
    state = await state_of(world)
    assert (state.turns, state.lives, harness.lives) == ({}, {}, [])
    assert (await world.session(SESSION)).due is None


async def test_a_message_becomes_a_turn_in_one_life_and_nothing_is_left_behind() -> None:
    world, harness, place = Store(), Harness(completes("the answer")), Place()
    await accepted(world, "m-1")
    state = await driven(world, equipped(harness, place))
    turn, life = state.turns["m-1"], next(iter(state.lives.values()))
    assert (turn.status, turn.text and turn.text.text) == ("completed", "the answer")
    assert (life.rung, life.ended is not None, life.workers) == ("start", True, [OTHER.worker])
    assert (place.lives, place.reaped) == (set(), [life.id])
    assert all(hold.closed for hold in place.holds)
    row = await world.session(SESSION)
    assert (row.status, row.due, state.worker) == ("idle", None, "")


async def test_messages_are_worked_off_in_order_each_in_a_life_of_its_own() -> None:
    world, harness = Store(), Harness()
    await accepted(world, "m-1", "m-2", "m-3")
    state = await driven(world, equipped(harness))
    assert list(state.turns) == [context.turn for context in harness.lives] == ["m-1", "m-2", "m-3"]
    assert len(state.lives) == 3


@pytest.mark.parametrize(
    ("end", "status", "reason"),
    [
        (TurnEnd("failed", code="api_401", reason="no key"), "failed", "no key"),
        (TurnEnd("cancelled", reason="anna stopped it"), "cancelled", "anna stopped it"),
    ],
)
async def test_a_turn_is_settled_as_the_harness_settled_it(end: TurnEnd, status: str, reason: str) -> None:
    world = Store()
    await accepted(world, "m-1")
    turn = (await driven(world, equipped(Harness(ends(end))))).turns["m-1"]
    assert (turn.status, turn.reason, turn.code) == (status, reason, end.code)


async def test_a_life_is_in_the_log_before_it_is_started() -> None:
    world, place = Store(), Place()
    await accepted(world, "m-1")
    known: list[bool] = []

    async def started() -> None:
        known.append(place.lives == {life.id for life in (await state_of(world)).lives.values()})

    place.started = started
    await driven(world, equipped(place=place))
    assert known == [True]


async def test_a_session_without_work_is_given_back_untouched() -> None:
    world, harness = Store(), Harness()
    await accepted(world)
    state = await driven(world, equipped(harness))
    assert (state.turns, harness.lives, state.worker) == ({}, [], "")
    assert (await world.session(SESSION)).due is None


# --------------------------------------------------------------------------------------- continue


async def test_a_lost_life_is_followed_by_one_that_continues_the_same_turn() -> None:
    world, place = Store(), Place()
    harness = Harness(raises(HarnessDied(-9, "killed")), completes("after all"))
    await accepted(world, "m-1")
    state = await driven(world, equipped(harness, place))
    first, second = state.lives.values()
    assert harness.rungs == ["start", "continue"]
    assert (first.code, second.rung, state.turns["m-1"].status) == (-9, "continue", "completed")
    assert place.reaped == [first.id, second.id]


async def test_what_a_dead_worker_left_is_ended_before_a_new_life_begins() -> None:
    world, harness, place = Store(), Harness(), Place()
    await begun(world)
    state = await driven(world, equipped(harness, place))
    assert (harness.rungs, state.turns["m-1"].status) == (["continue"], "completed")
    assert (place.reaped[0], state.lives["L1"].reason) == ("L1", "lost with its worker")


async def test_a_life_on_a_lost_machine_does_not_stop_recovery_and_the_log_says_so() -> None:
    world, place = Store(), Place()
    place.foreign = {"L1"}
    await begun(world)
    state = await driven(world, equipped(place=place))
    assert state.turns["m-1"].status == "completed"
    assert "cannot be reached from here" in state.lives["L1"].reason


async def test_a_settled_turn_whose_life_is_left_stays_due_until_the_life_is_ended() -> None:
    world, harness, place = Store(), Harness(), Place("L1")
    journal = await begun(world)
    await journal.turn_completed("done")
    assert (await world.session(SESSION)).due is not None
    state = await driven(world, equipped(harness, place))
    assert (place.lives, harness.lives, state.lives["L1"].reason) == (set(), [], "the turn was settled")
    assert (await world.session(SESSION)).due is None


@pytest.mark.parametrize(
    ("policy", "name", "said"), [("safe", "Read", AGAIN), ("never", "Bash", UNKNOWN)], ids=("safe", "never")
)
async def test_a_released_call_is_never_said_to_have_not_run(policy: str, name: str, said: str) -> None:
    world = Store()
    journal = await begun(world)
    await asked(
        journal, ("c1", name, {"x": 1}), policy="safe" if policy == "safe" else "never", origin="builtin"
    )
    await journal.tool_gate("c1", "L1")
    await journal.life_ended("L1", "lost")
    call = (await driven(world, equipped())).tool_calls["c1"]
    assert (call.outcome, call.result and call.result.text) == ("unknown", said)


async def test_a_call_that_never_ran_beside_one_that_did_is_not_started() -> None:
    world = Store()
    journal = await begun(world)
    await asked(journal, ("c1", "Bash", {"x": 1}), ("c2", "Bash", {"x": 2}), origin="builtin")
    await journal.tool_gate("c1", "L1")
    state = await driven(world, equipped())
    assert [state.tool_calls[call].outcome for call in ("c1", "c2")] == ["unknown", "not_started"]
    result = state.tool_calls["c2"].result
    assert result is not None and result.text == NOT_STARTED
    assert any("c1" in told for told in state.turns["m-1"].told)


# ----------------------------------------------------------------------------------------- attach


async def test_a_living_harness_is_attached_to_and_goes_on() -> None:
    world, harness, place = Store(), Harness(), Place("L1")
    await begun(world)
    state = await driven(world, equipped(harness, place))
    assert (harness.rungs, list(state.lives)) == (["attach"], ["L1"])
    assert state.lives["L1"].workers == [OWNER.worker, OTHER.worker]
    assert harness.lives[0].token == "token"
    assert place.lives == set()


async def test_a_keeper_that_leaves_just_before_the_attach_is_a_lost_life() -> None:
    world, harness, place = Store(), Harness(), Place("L1")
    place.attach_fails = [KeeperGone("the handshake failed")]
    await begun(world)
    state = await driven(world, equipped(harness, place))
    assert (harness.rungs, state.lives["L1"].reason) == (["continue"], "its keeper is gone")
    assert state.turns["m-1"].status == "completed"


async def test_the_link_is_closed_when_the_session_is_lost_during_the_attach() -> None:
    world, place = Store(), Place("L1")
    await begun(world)
    held = await driver(world, equipped(place=place))

    async def attached() -> None:
        await world.claim_session(THIRD, SESSION, take_over=True)

    place.attached = attached
    with pytest.raises(BaseException) as lost:
        await held.run()
    assert lost.group_contains(WriterFenced)
    assert [hold.closed for hold in place.holds] == [True]
    assert place.lives == {"L1"}


async def test_a_keeper_that_serves_a_newer_worker_ends_the_driver_and_not_the_life() -> None:
    world, place = Store(), Place("L1")
    place.attach_fails = [StaleEpoch(2, 3)]
    await begun(world)
    held = await driver(world, equipped(place=place))
    await world.claim_session(THIRD, SESSION, take_over=True)
    with pytest.raises(BaseException) as lost:
        await held.run()
    assert lost.group_contains(WriterFenced)
    assert (place.lives, place.reaped) == ({"L1"}, [])


async def test_who_says_that_it_serves_a_worker_of_which_the_log_knows_nothing_is_no_keeper() -> None:
    """A harness can take its keeper's place in the run directory. Its life is ended all the same."""
    world, place = Store(), Place("L1")
    place.attach_fails = [StaleEpoch(2, 99)]
    place.epochs["L1"] = 99
    await begun(world)
    state = await driven(world, equipped(place=place))
    assert state.turns["m-1"].status == "completed"
    assert place.reaped[0] == "L1"
    assert "epoch 99" in state.lives["L1"].reason


# -------------------------------------------------------------------------------- superseded, fails


async def test_a_superseded_worker_does_not_end_the_new_owners_life() -> None:
    world, place = Store(), Place()

    async def stuck_while_superseded(ctx: LifeContext, link: Link) -> TurnEnd:
        await world.claim_session(THIRD, SESSION, take_over=True)
        raise HarnessStuck("no output for a long time; see the trace")

    await accepted(world, "m-1")
    held = await driver(world, equipped(Harness(stuck_while_superseded), place))
    with pytest.raises(BaseException) as lost:
        await held.run()
    assert lost.group_contains(WriterFenced)
    assert (place.reaped, len(place.lives)) == ([], 1)


async def _bug(ctx: LifeContext, link: Link) -> TurnEnd:
    raise KeyError("an adapter's bug")


@pytest.mark.parametrize("script", [raises(HarnessStuck("silent; see the trace")), _bug])
async def test_lives_without_progress_come_to_an_end_and_a_person_is_told_why(script: Script) -> None:
    world, place = Store(), Place()
    await accepted(world, "m-1")
    state = await driven(world, equipped(Harness(script), place))
    turn = state.turns["m-1"]
    assert (turn.status, len(turn.lives), place.lives) == ("needs_input", MAX_FRUITLESS, set())
    assert "the last one: " in turn.reason
    assert (await world.session(SESSION)).due is None


async def test_a_keeper_that_dies_at_the_start_costs_a_life_each_time() -> None:
    world, place = Store(), Place()
    place.start_fails = [KeeperGone("it died at once") for _ in range(MAX_FRUITLESS)]
    await accepted(world, "m-1")
    state = await driven(world, equipped(place=place))
    assert state.turns["m-1"].status == "needs_input"
    assert [life.reason for life in state.lives.values()] == ["it died at once"] * MAX_FRUITLESS


async def test_a_missing_harness_needs_a_person_before_any_life() -> None:
    world, harness = Store(), Harness()
    harness.missing = HarnessMissing("not here; run `harness-durable install`")
    await accepted(world, "m-1")
    state = await driven(world, equipped(harness))
    turn = state.turns["m-1"]
    assert (turn.status, turn.reason, turn.lives) == ("needs_input", str(harness.missing), [])


async def test_what_a_life_cannot_start_without_needs_a_person_and_uses_up_nothing() -> None:
    world, place = Store(), Place()
    missing = BadSetting("nobody is logged in; log in, then resume the session")
    place.start_fails = [missing]
    await accepted(world, "m-1")
    turn = (await driven(world, equipped(place=place))).turns["m-1"]
    assert (turn.status, turn.reason, turn.fruitless) == ("needs_input", str(missing), 0)
    await (await Inbox.open(world, SESSION)).resume("anna")
    assert (await driven(world, equipped(place=place))).turns["m-1"].status == "completed"


async def test_a_missing_workspace_is_left_to_other_workers_and_in_the_end_to_a_person() -> None:
    world, place = Store(), Place()
    missing = WorkspaceMissing("the folder ws is not there; make it, then resume the session")
    place.start_fails = [missing] * MAX_IN_VAIN
    await accepted(world, "m-1")
    for _ in range(MAX_IN_VAIN - 1):
        with pytest.raises(ExceptionGroup) as raised:
            await driven(world, equipped(place=place))
        assert raised.group_contains(WorkspaceMissing)
        assert (await turn_of(world)).status == "interrupted"
    turn = (await driven(world, equipped(place=place))).turns["m-1"]
    assert (turn.status, turn.reason, turn.fruitless) == ("needs_input", str(missing), 0)
    await (await Inbox.open(world, SESSION)).resume("anna")
    assert (await driven(world, equipped(place=place))).turns["m-1"].status == "completed"


async def test_a_workspace_that_was_missing_between_other_troubles_starts_the_count_anew() -> None:
    world, place = Store(), Place()
    missing = WorkspaceMissing("the folder ws is not there; make it, then resume the session")
    place.start_fails = [*[missing] * (MAX_IN_VAIN - 1), SandboxUnavailable("no room; free some"), missing]
    await accepted(world, "m-1")
    for _ in range(MAX_IN_VAIN + 1):
        with pytest.raises(ExceptionGroup):
            await driven(world, equipped(place=place))
    assert (await driven(world, equipped(place=place))).turns["m-1"].status == "completed"


async def test_a_life_that_its_gateway_gives_up_is_ended_and_the_turn_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, place = Store(), Place()
    serve = Gateway.serve

    async def once(gateway: Gateway, requests: AsyncIterator[Request]) -> None:
        monkeypatch.setattr(Gateway, "serve", serve)
        raise HarnessStuck("it asked again; its life is given up")

    monkeypatch.setattr(Gateway, "serve", once)
    await accepted(world, "m-1")
    state = await driven(world, equipped(Harness(Works(), completes()), place))
    assert state.turns["m-1"].status == "completed"
    assert [life.reason for life in state.lives.values()] == [
        "it asked again; its life is given up",
        "the turn was settled",
    ]
    assert place.reaped == list(state.lives)


async def test_each_host_has_the_workspace_in_a_folder_of_its_own() -> None:
    """And where the adapter hears that it is, there the harness is started."""
    world, place = Store(), Place()
    harness = Harness(raises(HarnessStuck("it hangs; try again")), completes())
    await accepted(world, "m-1", agent=msgspec.structs.replace(AGENT, workspace="repo"))
    with pytest.raises(ExceptionGroup) as raised:
        await driven(world, equipped(harness, place, workspaces=None))
    assert raised.group_contains(WorkspaceMissing, match="HARNESS_DURABLE_WORKSPACES")

    async def lost() -> None:
        place.started = None
        raise SandboxUnavailable("the host is on fire; use another one")

    place.started = lost
    with pytest.raises(ExceptionGroup):
        await driven(world, equipped(harness, place, workspaces="/srv/one"))
    state = await driven(world, equipped(harness, place, workspaces="/srv/two"))
    assert state.turns["m-1"].status == "completed"
    assert [spec.cwd for spec in place.specs] == ["/srv/one/repo", "/srv/two/repo", "/srv/two/repo"]
    assert [life.cwd for life in harness.lives] == ["/srv/two/repo"] * 2
    assert [life.home for life in harness.lives] == [f"run/{spec.life}/home" for spec in place.specs[1:]]


@pytest.mark.parametrize("moment", ["it settled the turn", "it gave up the life"])
async def test_a_worker_that_was_paused_does_not_end_the_life_of_its_successor(moment: str) -> None:
    """It had asked the log just before; the newer one attached in between."""
    world = Store()

    class Late(Place):
        async def reap(self, ref: LifeRef, epoch: int | None = None) -> bool:
            await world.claim_session(THIRD, SESSION, take_over=True)
            self.epochs[ref.life] += 1
            return await super().reap(ref, epoch)

    async def superseded(ctx: LifeContext, link: Link) -> TurnEnd:
        if moment == "it gave up the life":
            raise HarnessStuck("it hangs; try again")
        return TurnEnd("completed", "done")

    await accepted(world, "m-1")
    place = Late()
    with pytest.raises(ExceptionGroup) as raised:
        await driven(world, equipped(Harness(superseded), place))
    assert raised.group_contains(WriterFenced)
    assert len(place.lives) == 1
    assert place.reaped == []


async def test_a_turn_that_was_finished_before_its_keeper_died_is_finished() -> None:
    world, place = Store(), Place()

    async def last_words(ctx: LifeContext, link: Link) -> TurnEnd:
        place.die(ctx.life)
        async for _ in link.output():
            pass
        return TurnEnd("completed", "my last words")

    await accepted(world, "m-1")
    state = await driven(world, equipped(Harness(last_words, raises(HarnessDied(1, ""))), place))
    assert (state.turns["m-1"].status, len(state.lives)) == ("completed", 1)


async def test_a_sandbox_that_is_out_of_order_uses_up_nothing_however_often() -> None:
    world, place = Store(), Place()
    await accepted(world, "m-1")
    for _ in range(MAX_FRUITLESS + 2):
        place.start_fails = [SandboxUnavailable("no room for another container; free some")]
        with pytest.raises(BaseException) as trouble:
            await driven(world, equipped(place=place))
        assert trouble.group_contains(SandboxUnavailable)
        turn = (await state_of(world)).turns["m-1"]
        assert (turn.status, turn.fruitless) == ("interrupted", 0)
        assert (await state_of(world)).life is None
    assert (await driven(world, equipped(place=place))).turns["m-1"].status == "completed"


async def test_a_worker_without_the_sessions_tools_does_not_drive_it() -> None:
    world, place = Store(), Place()
    agent = AgentSpec("claude-code", "2.1.0", "x", "local", "/ws", custom_tools=("pay", "deploy"))
    await accepted(world, "m-1", agent=agent)
    with pytest.raises(BadTool, match="deploy, pay"):
        await driven(world, equipped(place=place))
    assert (await state_of(world)).turns == {}


async def test_a_steer_that_the_turn_never_took_is_a_message_even_if_the_worker_dies_right_then() -> None:
    world, harness = Store(), Harness()
    journal = await begun(world)
    await (await Inbox.open(world, SESSION)).accept("st", "also that", when_busy="steer")
    await journal.turn_completed("done")
    state = await driven(world, equipped(harness))
    assert list(state.turns) == ["m-1", "st+queued"]
    assert (state.messages["st+queued"].text.text, state.steers("m-1")) == ("also that", [])


async def test_two_workers_after_each_other_give_one_turn_and_dense_numbers() -> None:
    world = Store()
    await accepted(world, "m-1")
    await taken(world, OWNER)
    await driven(world, equipped())
    records = await world.read(SESSION)
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    assert [record.kind for record in records].count("turn.started") == 1
    assert (await state_of(world)).agent == AGENT
