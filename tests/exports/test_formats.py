"""Whatever a log says, every format says it; what is said of a death is true."""

from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness_durable import events as ev
from harness_durable import fold
from harness_durable.exports import Material, Redaction
from harness_durable.exports.spans import Span, Spans
from harness_durable.payload import Payload, pack_text
from tests.exports.kit import BEGUN, FORMATS, HISTORIES, KINDS, codec_name, exported, history, made, material
from tests.exports.perfetto_check import check as check_perfetto
from tests.unit.log_kit import BEGIN, TEXT, model, tool

TEXTS = st.sampled_from(["", "x", "L1", "```\n````\n# no", "\x1b[31m\u202e", "<b>&", "\x00é😀", '{"a": [1]}'])
IDS = st.sampled_from(["a", "b", "c"])


def strategy(hint: Any, name: str) -> st.SearchStrategy[Any]:
    """Values of a member: ids out of so few that events meet each other."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin is types.UnionType:
        return st.one_of([strategy(one, name) for one in inside])
    if origin is Literal:
        return st.sampled_from(inside)
    if origin is tuple:
        return st.lists(strategy(inside[0], name), max_size=2).map(tuple)
    if origin is dict:
        return st.dictionaries(TEXTS, strategy(inside[1], name), max_size=2)
    simple: dict[Any, st.SearchStrategy[Any]] = {
        type(None): st.none(),
        bool: st.booleans(),
        int: st.integers(0, 2**40),
        bytes: st.binary(max_size=4),
        str: st.sampled_from(["anthropic", "openai-chat", "?"]) if name == "wire" else st.one_of(IDS, TEXTS),
        Payload: st.one_of(TEXTS.map(lambda text: pack_text(text).payload), st.just(Payload(7))),
    }
    return simple[hint] if hint in simple else struct(hint)


def struct(kind: type[Any]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind)
    return st.builds(kind, **{name: strategy(hints[name], name) for name in kind.__struct_fields__})


LOGS = st.lists(st.one_of([struct(kind) for kind in KINDS]), max_size=12)


def check(found: dict[str, bytes], events: int) -> None:
    """That each format is what it says it is."""
    lines = [json.loads(line) for line in found["jsonl"].splitlines()]
    assert [line["seq"] for line in lines] == list(range(1, events + 1))
    for request in found["otlp"].splitlines():
        json.loads(request)
    check_perfetto(json.loads(found["perfetto"]))
    found["markdown"].decode()


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(LOGS, st.lists(st.integers(-5, 5), min_size=12, max_size=12))
def test_any_log_converts_to_every_format(log: list[ev.AnyEvent], steps: list[int]) -> None:
    """Also one of hosts whose clocks do not agree."""
    time = BEGUN
    timed: list[ev.Entry] = []
    for seq, (event, step) in enumerate(zip(log, steps, strict=False), 1):
        timed.append(ev.Entry(seq, time := time + step, 1, event))
    found = Material("s", tuple(timed), fold.fold(timed))
    check({name: b"".join(convert(found)) for name, convert in FORMATS.items()}, len(log))


@pytest.mark.parametrize("kind", KINDS, ids=codec_name)
@pytest.mark.parametrize("begun", [True, False], ids=["in its place", "alone"])
def test_every_kind_of_event_is_in_every_format_that_has_events(kind: type[ev.AnyEvent], begun: bool) -> None:
    before = [*BEGIN, *model(), *tool("c1", released=True)] if begun else []
    names = {"call": "c1", "life": "L1", "turn": "m-1"}
    event = made(kind, lambda _, name: names.get(name, name), lambda _: TEXT)
    found = material(*before, event)
    done = {name: b"".join(convert(found)) for name, convert in FORMATS.items()}
    check(done, len(before) + 1)
    for name in ("jsonl", "otlp", "perfetto"):
        assert f'"{codec_name(kind)}"'.encode() in done[name], name


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
@pytest.mark.parametrize("content", [True, False])
async def test_a_history_converts_and_twice_to_the_same(path: Path, content: bool) -> None:
    world, session = await history(path)
    found = await exported(world, Redaction(content=content), session)
    check(found, found["jsonl"].count(b"\n"))
    assert found == await exported(world, Redaction(content=content), session)


# ------------------------------------------------------------------------------------------ spans

DIED: list[ev.AnyEvent] = [
    *BEGIN,
    *model("m1"),
    *tool("c1", released=True),
    ev.LifeEnded("L1", "lost with its worker"),
    ev.TurnInterrupted("m-1", "lost with its worker"),
]
SECOND = [
    ev.LifeStarted("L2", "m-1", "local", "run", "here", "2.1.0"),
    ev.TurnResumed("m-1", "L2", "continue"),
]


def named(found: Spans, kind: str, name: str) -> list[Span]:
    return [span for span in found.all() if (span.kind, span.id) == (kind, name)]


def test_a_lost_life_ends_with_its_death_and_names_the_next() -> None:
    found = Spans(material(*DIED, *SECOND))
    [first], [second] = named(found, "life", "L1"), named(found, "life", "L2")
    assert (first.status, first.word, first.successor) == ("lost", "process_lost", second)
    assert (second.status, second.successor, second.lane) == ("open", None, 2)
    assert first.end < second.start


def test_a_planned_stop_is_no_loss() -> None:
    log = [*DIED[:-1], ev.TurnInterrupted("m-1", "deploy", planned=True), *SECOND]
    [first] = named(Spans(material(*log)), "life", "L1")
    assert (first.status, first.word, first.successor) == ("done", "stopped", None)


def test_a_call_that_ran_twice_is_two_runs_of_which_the_first_is_lost() -> None:
    log = [*DIED, *SECOND, ev.ToolReleased("c1", "L2"), ev.ToolCompleted("c1", TEXT, "hook")]
    found = Spans(material(*log))
    first, second = named(found, "tool", "c1")
    assert (first.status, first.word, first.successor) == ("lost", "process_lost", second)
    assert (second.status, second.run, second.lane) == ("done", 2, 2)
    [life] = named(found, "life", "L1")
    assert first.end == life.end
    assert first.parent is life


def test_an_unknown_call_ends_with_its_life_and_names_the_repeat_that_was_refused() -> None:
    repeat = [*tool("c2", model_call="m2"), ev.ToolRefused("c2", "c1", TEXT)]
    found = Spans(material(*DIED, ev.ToolUnknown("c1", TEXT), *SECOND, *model("m2"), *repeat))
    [unknown], [refused], [life] = (
        named(found, *key) for key in (("tool", "c1"), ("tool", "c2"), ("life", "L1"))
    )
    assert (unknown.status, unknown.word, unknown.end) == ("lost", "unknown", life.end)
    assert unknown.successor is refused
    assert refused.status == "failed"


def test_a_lost_model_call_names_the_same_request_of_the_next_life() -> None:
    asked = ev.ModelRequested("m2", "same", "L1", "anthropic", "x", "/", (TEXT,))
    death = [
        ev.LifeEnded("L1", "gone"),
        *SECOND,
        ev.ModelFailed("m2", None, "the worker that asked was lost"),
    ]
    other = ev.ModelRequested("m3", "other", "L2", "anthropic", "x", "/", (TEXT,))
    again = ev.ModelRequested("m4", "same", "L2", "anthropic", "x", "/", (TEXT,))
    found = Spans(material(*BEGIN, asked, *death, other, again))
    [lost], [successor], [life] = (
        named(found, *key) for key in (("model", "m2"), ("model", "m4"), ("life", "L1"))
    )
    assert (lost.status, lost.successor, lost.end) == ("lost", successor, life.end)


def test_a_provider_that_refused_is_a_failure_and_no_loss() -> None:
    [call] = named(
        Spans(material(*BEGIN, *model(done=False), ev.ModelFailed("m1", 429, "slow down"))), "model", "m1"
    )
    assert (call.status, call.successor, call.reason) == ("failed", None, "slow down")
