"""``Durable``: what a program sees when it opens a World, sends and waits, whoever drives."""

from __future__ import annotations

from pathlib import Path

import anyio
import msgspec
import pytest

from harness_durable import clock
from harness_durable.adapter import LifeContext, TurnEnd
from harness_durable.errors import (
    BadInput,
    BadSetting,
    BadTool,
    DamagedLog,
    HarnessMissing,
    NotFound,
    SandboxUnavailable,
    SessionBusy,
    UnknownName,
)
from harness_durable.events import AgentSpec
from harness_durable.runtime.api import Durable
from harness_durable.runtime.sessions import Turn
from harness_durable.runtime.worker import Worker
from harness_durable.sandbox import Link
from harness_durable.tools import tool
from tests.runtime.conftest import Front
from tests.runtime.kit import (
    HandClock,
    Harness,
    Place,
    Store,
    Works,
    accepted,
    at_hand,
    completes,
    equipped,
    is_,
    state_of,
    until,
)
from tests.unit.memory_world import OTHER
from tests.unit.session_kit import SESSION


@tool(replay="never")
def deploy(version: str) -> str:
    """Put a version into production."""
    return version


async def status_of(turn: Turn) -> str:
    return (await turn.result()).status


# -------------------------------------------------------------------------------------- the ordinary


async def test_send_and_wait_for_the_result(front: Front) -> None:
    world = Store()
    async with front(world, Harness(completes("fixed"))) as durable:
        session = await durable.agent("claude-code").session("ticket-42", title="tests")
        turn = await session.send("Fix the failing tests", message_id="m-1")
        result = await turn.result()
    assert (result.turn, result.status, result.text, result.lives) == ("m-1", "completed", "fixed", 1)
    assert (await state_of(world, "ticket-42")).title == "tests"


async def test_the_agent_goes_into_the_log_and_stays_what_it_was(front: Front) -> None:
    """C040: the model is the session's, whoever opens it with another."""
    world = Store()
    async with front(world) as durable:
        first = durable.agent(
            "claude-code",
            tools=[deploy],
            workspace="repo",
            model="m",
            effort="high",
            builtin_tools=["Bash"],
            system_prompt="be brief",
            policies={"Bash": "never"},
        )
        await first.session(SESSION)
        found = await durable.agent("claude-code", tools=[deploy], model="another").session(SESSION)
        agent = (await found.state()).agent
    assert agent == AgentSpec(
        adapter="claude-code",
        harness_version="2.1.0",
        model="m",
        sandbox="local",
        workspace=str(Path.cwd() / "repo"),
        effort="high",
        tools=("Bash",),
        custom_tools=("deploy",),
        system_prompt="be brief",
        policies={"Bash": "never"},
    )


async def test_a_workspace_in_the_folder_of_workspaces_is_known_by_its_place_in_it(
    front: Front, tmp_path: Path
) -> None:
    harness = Harness()
    async with front(Store(), harness, workspaces=tmp_path) as durable:
        session = await durable.agent("claude-code", workspace=tmp_path / "team/repo").session(SESSION)
        await (await session.send("go")).result()
        agent = (await session.state()).agent
    assert agent is not None and agent.workspace == "team/repo"
    assert [life.cwd for life in harness.lives] == [f"{tmp_path}/team/repo"]


async def test_every_life_of_a_session_has_the_model_that_it_began_with(front: Front) -> None:
    """C040: thinking that one model has signed is never shown to another."""
    world, models = Store(), list[str]()

    async def works(ctx: LifeContext, link: Link) -> TurnEnd:
        models.append(ctx.agent.model)
        return TurnEnd("completed", "done")

    for number, model in enumerate(("m", "another")):
        async with front(world, Harness(works)) as durable:
            session = await durable.agent("claude-code", model=model).session(SESSION)
            await (await session.send("do it", message_id=f"m-{number}")).result()
    assert models == ["m", "m"]


async def test_sessions_without_a_name_get_one_of_their_own(front: Front) -> None:
    async with front(Store()) as durable:
        one, other = await durable.agent().session(), await durable.agent().session()
        assert one.id != other.id


async def test_several_sessions_are_driven_at_once(front: Front) -> None:
    works = Works(), Works()
    async with front(Store(), Harness(*works)) as durable:
        turns = [await (await durable.agent().session(name)).send("go") for name in ("a", "b")]
        for work in works:
            await work.begun.wait()
        for work in works:
            work.enough.set()
        assert [(await turn.result()).status for turn in turns] == ["completed"] * 2


async def test_work_that_an_earlier_process_left_is_taken_up_when_the_session_is_opened(
    front: Front,
) -> None:
    world = Store()
    await accepted(world, "m-1")
    async with front(world) as durable:
        session = await durable.agent().session(SESSION)
        assert (await session.turn("m-1").result()).status == "completed"


async def test_a_session_is_left_alone_until_it_is_opened(front: Front) -> None:
    world, harness = Store(), Harness()
    await accepted(world, "m-1", session="waiting")
    async with front(world, harness) as durable:
        await (await (await durable.agent().session("another")).send("go")).result()
    assert [context.session for context in harness.lives] == ["another"]


async def test_until_idle_waits_for_the_harness_to_be_gone(front: Front) -> None:
    place = Place()
    async with front(Store(), place=place) as durable:
        session = await durable.agent().session(SESSION)
        await (await session.send("go")).result()
        await durable.until_idle(SESSION)
        assert place.lives == set()
        await durable.until_idle("never heard of")


# ------------------------------------------------------------------------------------ what goes wrong


async def test_a_name_that_nobody_knows_is_refused_at_once(tmp_path: Path) -> None:
    async with Durable.open(f"sqlite:{tmp_path / 'w.db'}", run_dir=tmp_path / "run") as durable:
        with pytest.raises(UnknownName, match="no adapter named 'nonsense'; known: claude-code"):
            durable.agent("nonsense")
        with pytest.raises(UnknownName, match="no sandbox named 'nonsense'; known: local"):
            durable.agent("claude-code", sandbox="nonsense")


async def test_nothing_is_accepted_where_no_life_could_be_started(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(BadSetting, match="HARNESS_DURABLE_RUN_DIR"):
        async with Durable.open(f"sqlite:{tmp_path / 'w.db'}", run_dir=tmp_path / "run"):
            pass
    async with Durable.open(f"sqlite:{tmp_path / 'w.db'}", run_dir=tmp_path / "run", drive=False) as durable:
        assert await durable.world.sessions() == []


async def test_a_world_url_that_cannot_be_used_says_which_can() -> None:
    with pytest.raises(UnknownName, match="sqlite"):
        async with Durable.open("nonsense:x"):
            pass
    with pytest.raises(BadSetting, match="scheme"):
        async with Durable.open("nonsense"):
            pass


async def test_a_missing_harness_is_said_before_the_session_exists(front: Front) -> None:
    world, harness = Store(), Harness()
    harness.missing = HarnessMissing("not here; run `harness-durable install claude-code`")
    async with front(world, harness) as durable:
        with pytest.raises(HarnessMissing):
            await durable.agent().session(SESSION)
    assert world.stored == {}


async def test_whoever_waits_hears_that_the_tools_are_not_here(front: Front) -> None:
    world = Store()
    await accepted(
        world, "m-1", agent=AgentSpec("claude-code", "1", "x", "local", "/ws", custom_tools=("pay",))
    )
    async with front(world) as durable:
        session = await durable.agent(tools=[deploy]).session(SESSION)
        with pytest.raises(BadTool, match="pay"):
            await session.turn("m-1").result()
        with pytest.raises(BadTool):
            async for _ in session.turn("m-1").events():
                pass


async def test_whoever_waits_hears_of_a_damaged_log(front: Front) -> None:
    world, works = Store(), Works()
    async with front(world, Harness(works)) as durable:
        turn = await (await durable.agent().session(SESSION)).send("go", message_id="m-1")
        await works.begun.wait()
        records = world.stored[SESSION].records
        records.append(msgspec.structs.replace(records[-1], seq=len(records) + 1, body=b"junk"))
        works.enough.set()
        with pytest.raises(DamagedLog):
            await turn.result()


async def test_a_failure_is_forgotten_when_somebody_asks_again(front: Front) -> None:
    world = Store()
    await accepted(
        world, "m-1", agent=AgentSpec("claude-code", "1", "x", "local", "/ws", custom_tools=("deploy",))
    )
    async with front(world) as durable:
        first = await durable.agent().session(SESSION)
        with pytest.raises(BadTool):
            await first.turn("m-1").result()
        second = await durable.agent(tools=[deploy]).session(SESSION)
        assert (await second.turn("m-1").result()).status == "completed"


async def test_a_turn_that_no_message_starts_is_not_found(front: Front) -> None:
    async with front(Store()) as durable:
        session = await durable.agent().session(SESSION)
        with pytest.raises(NotFound, match="no message 'm-9'"):
            await session.turn("m-9").result()


async def test_a_store_that_blinks_ends_nothing(front: Front, hands: HandClock) -> None:
    world = Store()
    async with front(world, lease_seconds=3600) as durable:
        session = await durable.agent().session(SESSION)
        turn = await session.send("go", message_id="m-1")
        world.fail_reads, world.fail_waits = 3, 1
        status = await at_hand(lambda: status_of(turn), hands)
        assert (status, world.fail_reads, world.fail_waits) == ("completed", 0, 0)


async def test_a_turn_can_be_waited_for_and_followed_across_an_outage(front: Front, hands: HandClock) -> None:
    world, works = Store(), Works()
    async with front(world, Harness(works), lease_seconds=3600) as durable:
        turn = await (await durable.agent().session(SESSION)).send("go", message_id="m-1")
        await works.begun.wait()
        world.down = True

        async def back() -> None:
            await clock.sleep(20.0)
            world.down = False
            works.enough.set()

        async def kinds() -> list[str]:
            return [type(entry.event).__name__ async for entry in turn.events()]

        async def waited() -> tuple[str, list[str]]:
            return await status_of(turn), await kinds()

        status, seen = await at_hand(waited, hands, back)
    assert (status, seen[0], seen[-1]) == ("completed", "SessionCreated", "TurnCompleted")


async def test_a_sandbox_that_is_out_of_order_is_tried_again(front: Front, hands: HandClock) -> None:
    place = Place()
    place.start_fails = [SandboxUnavailable("no room; free some") for _ in range(8)]
    world = Store()
    async with front(world, place=place, lease_seconds=3600) as durable:
        await (await durable.agent().session(SESSION)).send("go", message_id="m-1")
        await until(is_(world, "completed"), hands)
    turn = (await state_of(world)).turns["m-1"]
    assert len(turn.lives) == 9


# ------------------------------------------------------------------------------ who drives the session


async def test_a_session_of_another_worker_is_followed_and_taken_over_when_it_leaves(
    front: Front, hands: HandClock
) -> None:
    world, works, harness = Store(), Works(), Harness()
    place = Place()
    async with (
        front(world, harness, place, lease_seconds=3600) as durable,
        anyio.create_task_group() as tasks,
    ):
        await accepted(world, "m-1")
        async with Worker.open(world, equipped(Harness(works), place, lease_seconds=3600)) as other:
            tasks.start_soon(other.drive, SESSION)
            await works.begun.wait()
            session = await durable.agent().session(SESSION)
            await hands.advance(10.0)
            assert harness.lives == []
            works.enough.set()
            assert await at_hand(lambda: status_of(session.turn("m-1")), hands) == "completed"
        turn = await session.send("next", message_id="m-2")
        assert await at_hand(lambda: status_of(turn), hands) == "completed"
    assert [context.turn for context in harness.lives] == ["m-2"]


async def test_it_can_be_asked_beforehand_whether_somebody_else_drives(front: Front) -> None:
    world = Store()
    await accepted(world, "m-1")
    async with front(world) as durable:
        await durable.refuse_if_held(SESSION)
        epoch = (await world.claim_session(OTHER, SESSION)).epoch
        with pytest.raises(SessionBusy):
            await durable.refuse_if_held(SESSION)
        await world.release(SESSION, epoch)
        await durable.refuse_if_held(SESSION)
        with pytest.raises(NotFound):
            await durable.refuse_if_held("nobody")


async def test_a_message_that_comes_just_as_driving_ends_is_driven(front: Front) -> None:
    world = Store()
    await accepted(world, "m-1")
    async with front(world) as durable:
        session = await durable.agent().session(SESSION)
        sent: list[str] = []

        async def after_read() -> None:
            row = world.stored[SESSION]
            if row.row.status == "idle" and row.owner is None and not sent:
                sent.append("m-2")
                await session.send("next", message_id="m-2")

        world.after_read = after_read
        await until(is_(world, "completed", "m-2"))
        assert sent == ["m-2"]


# ------------------------------------------------------------------------------------------- the end


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize(
    "error",
    [
        ValueError("mine"),
        ExceptionGroup("mine", [ValueError("a"), TypeError("b")]),
        ExceptionGroup("mine", [BadInput("a"), ExceptionGroup("inner", [BadInput("b")])]),
        KeyboardInterrupt(),
        SystemExit(3),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_the_caller_raises_comes_out_unharmed(
    front: Front, tmp_path: Path, kind: str, error: BaseException
) -> None:
    real = Durable.open(f"sqlite:{tmp_path / 'w.db'}", run_dir=tmp_path / "r")
    with pytest.raises(type(error)) as found:
        async with real if kind == "sqlite" else front(Store()):
            raise error
    assert found.value is error
