"""What a worker brings along, and what it finds out before it starts anything."""

from __future__ import annotations

from pathlib import Path

import anyio
import msgspec
import pytest

from harness_durable.errors import BadSetting, BadTool, UnknownName
from harness_durable.gateway import Kind, Progress, wire
from harness_durable.runtime.equipment import Equipment
from harness_durable.runtime.progress import ProgressWriter, shown
from harness_durable.settings import resolve
from harness_durable.tools import tool
from tests.runtime.kit import Harness, Place, Store, accepted, equipped, until
from tests.unit.session_kit import AGENT, SESSION, begun, seen


@tool(replay="idempotent", probe=lambda: None)
def pay() -> str:
    """Pay."""
    return "paid"


def provider(**settings: object) -> Equipment:
    return Equipment(resolve(settings, environ={}).settings)


def test_the_real_provider_is_not_asked_without_a_key() -> None:
    with pytest.raises(BadSetting, match="ANTHROPIC_API_KEY"):
        provider().check_provider()


@pytest.mark.parametrize(
    "settings",
    [
        {"upstream_key": "sk-1"},
        {"upstream_auth": "login"},
        {"upstream_url": "http://127.0.0.1:9"},
        {"upstream_url": "https://notanthropic.example"},
    ],
)
def test_whoever_may_be_asked_without_a_key_is(settings: dict[str, str]) -> None:
    provider(**settings).check_provider()


def test_a_header_can_be_the_credential() -> None:
    provider(upstream_headers={"Authorization": "Bearer x"}).check_provider()
    with pytest.raises(BadSetting):
        provider(upstream_headers={"X-Team": "blue"}).check_provider()


def test_each_wire_goes_to_its_own_provider_with_its_own_key() -> None:
    env = {"ANTHROPIC_API_KEY": "sk-a", "OPENAI_API_KEY": "sk-o"}
    equipment = Equipment(resolve({}, environ=env).settings)

    found = {
        name: equipment.upstream(wire(name)) for name in ("anthropic", "openai-responses", "openai-chat")
    }

    assert {name: (upstream.key, upstream.url("/v1/x")) for name, upstream in found.items()} == {
        "anthropic": ("sk-a", "https://api.anthropic.com/v1/x"),
        "openai-responses": ("sk-o", "https://api.openai.com/v1/x"),
        "openai-chat": ("sk-o", "https://api.openai.com/v1/x"),
    }


def test_a_key_that_cannot_be_sent_is_found_out_and_not_shown() -> None:
    with pytest.raises(BadSetting) as error:
        provider(upstream_key="sk-secret\n").check_provider()
    assert "sk-secret" not in str(error.value)


def test_tools_that_the_session_needs_and_are_not_here_are_all_named() -> None:
    agent = msgspec.structs.replace(AGENT, custom_tools=("pay", "zap", "ask"))
    with pytest.raises(BadTool, match="tools ask, zap,"):
        equipped(None, None, pay).check_tools(agent)
    equipped(None, None, pay).check_tools(msgspec.structs.replace(AGENT, custom_tools=("pay",)))


def test_policies_come_from_the_harness_the_session_and_the_tools() -> None:
    agent = msgspec.structs.replace(AGENT, policies={"Bash": "safe", "Read": "never"})
    equipment = equipped(None, None, pay)
    assert equipment.policies(AGENT) == {"Read": "safe", seen("pay"): "idempotent"}
    assert equipment.policies(agent) == {"Bash": "safe", "Read": "never", seen("pay"): "idempotent"}
    classify = equipment.classifier(AGENT)
    assert [classify(name) for name in (seen("pay"), "Read", "unheard of")] == [
        Kind("idempotent", "custom", True),
        Kind("safe", "builtin", False),
        Kind("never", "builtin", False),
    ]


def test_a_harness_says_of_which_tools_it_asks_before_it_runs_them() -> None:
    harness = Harness()
    harness.capabilities = msgspec.structs.replace(harness.capabilities, exact=frozenset({"Edit"}))
    harness.containers = frozenset({"Agent"})
    some = equipped(harness).classifier(AGENT)
    assert [some(name).exact for name in ("Edit", "Agent", "Bash")] == [True, True, False]
    harness.capabilities = msgspec.structs.replace(harness.capabilities, exact=None)
    assert equipped(harness).classifier(AGENT)("Bash").exact, "it asks for every tool"


def test_a_workspace_has_one_name_and_a_place_on_each_host(tmp_path: Path) -> None:
    here, there = (equipped(workspaces=tmp_path / name) for name in ("here", "there"))
    (tmp_path / "link").symlink_to(tmp_path / "here")
    assert here.named(tmp_path / "here/a/b") == here.named(tmp_path / "link/a/b") == "a/b"
    agent = msgspec.structs.replace(AGENT, workspace="a/b")
    assert (here.place(agent), there.place(agent)) == (f"{tmp_path}/here/a/b", f"{tmp_path}/there/a/b")
    assert there.place(msgspec.structs.replace(AGENT, workspace=here.named(tmp_path / "here"))) == (
        f"{tmp_path}/there"
    )


def test_a_workspace_elsewhere_is_where_its_name_says(tmp_path: Path) -> None:
    for equipment in (equipped(workspaces=tmp_path / "here"), equipped(workspaces=None)):
        name = equipment.named(tmp_path / "here-too")
        assert name == str(tmp_path / "here-too")
        assert equipment.place(msgspec.structs.replace(AGENT, workspace=name)) == name


async def test_facts_are_what_the_log_cannot_know() -> None:
    world, place = Store(), Place("L1")
    journal = await begun(world)
    facts = await equipped(None, place, pay).facts(journal.state)
    assert (facts.keeper_alive, facts.probes, facts.asks) == (True, frozenset({seen("pay")}), False)
    place.die("L1")
    assert not (await equipped(None, place).facts(journal.state)).keeper_alive
    assert (await equipped().facts(journal.state, rival=True)).rival


async def test_a_session_in_which_a_person_is_asked_says_so() -> None:
    inbox = await accepted(Store(), agent=msgspec.structs.replace(AGENT, permission_mode="ask"))
    assert (await equipped().facts(inbox.state)).asks


async def test_what_is_used_is_made_once_and_closed_at_the_end() -> None:
    place = Place()
    equipment = equipped(Harness(), place)
    assert equipment.sandbox("local") is place
    with pytest.raises(UnknownName):
        equipment.adapter("nonsense")
    await equipment.aclose()
    assert place.closed


# ------------------------------------------------------------------------------------------- progress


async def test_progress_is_replaced_and_a_store_that_is_away_is_no_matter() -> None:
    world = Store()
    await accepted(world)
    writer = ProgressWriter(world, SESSION)

    async def stored(text: str) -> None:
        async def is_there() -> bool:
            return shown(await world.progress(SESSION)).text == text

        await until(is_there)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.run)
        writer.model(Progress("m1", None, "one", 3))
        writer.model(Progress("m1", None, "one two", 7))
        await stored("one two")
        world.down = True
        writer.tool("c1", "lost")
        await anyio.wait_all_tasks_blocked()
        world.down = False
        writer.tool("c1", "half \ud83d")
        await stored("half \ufffd")
        writer.model(Progress("m1", None, "one two", 7, True))
        await stored("")
        tasks.cancel_scope.cancel()


def test_options_are_for_sandboxes_that_take_some(tmp_path: Path) -> None:
    equipment = provider(run_dir=tmp_path / "run", sandbox_options={"memory": "1g"})
    assert equipment.sandbox_options("local", {}) == {}, "those of the settings are for others"
    with pytest.raises(BadSetting, match="takes no options"):
        equipment.sandbox_options("local", {"memory": "1g"})
    assert not (tmp_path / "run").exists(), "no sandbox was made for that"
    settled = equipment.sandbox_options("docker", {"cpus": "1"})
    assert (settled["memory"], settled["cpus"]) == ("1g", "1")
    with pytest.raises(BadSetting, match="imgae"):
        equipment.sandbox_options("docker", {"imgae": "x"})


def test_what_no_harness_may_see_is_named_whatever_the_world_is_called(tmp_path: Path) -> None:
    run_dir = str(tmp_path / "run")
    logs = provider(run_dir=run_dir, world=f"file:{tmp_path}/logs")
    assert logs.hidden == (run_dir, f"{tmp_path}/logs")
    assert provider(run_dir=run_dir, world="postgresql://db/x").hidden == (run_dir,)
