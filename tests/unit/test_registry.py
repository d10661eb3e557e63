"""Names to things: ours, other people's, and names that nobody knows."""

from __future__ import annotations

import inspect
from importlib.metadata import EntryPoint

import pytest

from harness_durable.errors import BadSetting, UnknownName
from harness_durable.registry import BUILT_IN, Room, known, load

ROOMS: tuple[Room, ...] = ("world", "adapter", "sandbox")
OURS = [(room, name) for room in ROOMS for name in BUILT_IN[room]]


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    """What other people's packages have registered."""
    points: list[EntryPoint] = []

    def entry_points(*, group: str) -> list[EntryPoint]:
        return [point for point in points if point.group == group]

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    return points


@pytest.mark.parametrize(("room", "name"), OURS)
def test_what_we_name_can_be_loaded(room: Room, name: str) -> None:
    found = load(room, name)
    assert inspect.iscoroutinefunction(found) if room == "world" else inspect.isclass(found)


@pytest.mark.parametrize("room", ROOMS)
def test_an_unknown_name_lists_the_known_ones(theirs: list[EntryPoint], room: Room) -> None:
    theirs.append(EntryPoint("zebra", "json:loads", f"harness_durable.{room}s"))
    with pytest.raises(UnknownName) as error:
        load(room, "nonsense")
    assert error.value.known == (*BUILT_IN[room], "zebra")
    assert all(word in str(error.value) for word in ("'nonsense'", "zebra", *BUILT_IN[room]))
    assert str(error.value).startswith(f"no {'World' if room == 'world' else room} named 'nonsense'; known: ")
    assert str(error.value).endswith("; name one of these, or install the package that brings 'nonsense'")


@pytest.mark.parametrize("room", ROOMS)
def test_what_other_people_register_is_known_and_found(theirs: list[EntryPoint], room: Room) -> None:
    import json

    theirs.append(EntryPoint("zebra", "json:loads", f"harness_durable.{room}s"))
    theirs.append(EntryPoint("elsewhere", "json:dumps", "another.group"))
    assert known(room) == (*BUILT_IN[room], "zebra")
    assert load(room, "zebra") is json.loads


@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("value", ["no.such.module:Thing", "json:no_such_thing"])
def test_what_other_people_broke_is_a_sentence(theirs: list[EntryPoint], room: Room, value: str) -> None:
    theirs.append(EntryPoint("zebra", value, f"harness_durable.{room}s"))
    with pytest.raises(BadSetting, match=f"{room} 'zebra' .* cannot be imported: .* uninstall its package"):
        load(room, "zebra")


def test_our_names_cannot_be_taken_by_others(theirs: list[EntryPoint]) -> None:
    theirs.append(EntryPoint("sqlite", "json:loads", "harness_durable.worlds"))
    assert known("world").count("sqlite") == 1
    assert load("world", "sqlite").__module__ == "harness_durable_worlds.sqlite"


def test_a_name_whose_driver_is_not_installed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BUILT_IN["world"], "cloud", "no_such_driver.world:open_world")
    with pytest.raises(BadSetting) as error:
        load("world", "cloud")
    assert "no_such_driver" in str(error.value)
    assert "pip install 'harness-durable[cloud]'" in str(error.value)
