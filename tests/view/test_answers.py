"""What the page asks for: rows, details, longer texts, places of a text, what happens."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator

import anyio
import msgspec
import pytest

from harness_durable import events as ev
from harness_durable.errors import DamagedLog, NotFound
from harness_durable.journal import Reader
from harness_durable.payload import pack
from harness_durable.runtime.progress import Shown
from harness_durable.transfer import read_file, salvage_session
from harness_durable.view import live
from harness_durable.view.crash import around
from harness_durable.view.detail import PAGE, body, detail, said_of
from harness_durable.view.find import find
from harness_durable.view.hall import Hall
from harness_durable.view.log import FileLog
from harness_durable.view.sheet import Sheet
from harness_durable.world import Salvage, StoredRecord
from tests.unit.memory_world import MemoryWorld
from tests.view.logs import LOST, Log, everything, hostile, long, message, records, text, worker_lost, write


async def sheet_of(log: Log, blobs: dict[str, bytes] | None = None) -> Sheet:
    world = MemoryWorld()
    await write(world, "s", log, blobs)
    sheet = Sheet(Reader(world, "s"))
    await sheet.refresh()
    return sheet


def item(sheet: Sheet, kind: str, state: str = "") -> int:
    return next(one.item for one in sheet.rows if one.kind == kind and state in ("", one.state))


async def test_a_part_of_the_rows_is_what_its_events_made() -> None:
    sheet = await sheet_of(long(500))
    part = sheet.between(100, 200)
    assert {one.seq for one in part} == set(range(101, 201))
    assert [*sheet.between(0, 100), *part, *sheet.between(200, 500)] == sheet.rows


async def test_the_detail_of_an_unknown_call_tells_how_it_was_settled() -> None:
    sheet = await sheet_of(everything())
    found = await detail(sheet, item(sheet, "tool", "unknown"))
    facts = {fact.label: fact for fact in found.facts}
    assert facts["replay policy"].value.startswith("never")
    assert facts["idempotency key"].value == "key-t2"
    assert facts["released in"].value == "life 1"
    assert facts["outcome"].value.startswith("unknown")
    assert facts["the model heard of it"].link > facts["outcome"].seq
    assert [one.label for one in found.texts][-1] == "What the model was told in place of an output"


async def test_facts_and_texts_carry_the_place_from_which_they_are_known() -> None:
    sheet = await sheet_of(everything())
    found = await detail(sheet, item(sheet, "tool", "failed"))
    outcome = next(one.seq for one in sheet.rows if one.kind == "tool" and one.state == "failed")
    assert [one.name for one in found.texts if one.seq < outcome] == ["input"]
    assert [one.name for one in found.texts if one.seq == outcome] == ["result"]


async def test_the_facts_of_a_death_in_a_container_say_how() -> None:
    killed = ev.LifeEnded("L1", "its keeper is gone: its container was killed", 137, "oom", 2)
    sheet = await sheet_of([*everything()[:6], killed, ev.TurnInterrupted("m-1", "gone")])
    found = {one.label: one.value for one in (await detail(sheet, 7)).facts}
    assert found["how"] == "it was killed because the memory of its sandbox was used up"
    assert (found["exit code"], found["killed for want of memory"]) == ("137", "2")


async def test_an_answer_from_the_log_is_told_with_the_life_that_used_it() -> None:
    sheet = await sheet_of(everything())
    found = await detail(sheet, item(sheet, "replay"))
    facts = [(fact.label, fact.value) for fact in found.facts]
    assert ("answered by", "the log, in life 2; not paid again") in facts


async def test_a_crash_shows_what_the_model_was_told_before_and_on_return() -> None:
    whole = (pack(b'{"messages":[]}').payload, message("user", "hello"), message("user", "cut off"))
    log: Log = [
        *everything()[:6],
        ev.ModelRequested("a", "k", "L1", "anthropic", "m", "/", whole[:2]),
        ev.LifeEnded("L1", LOST),
        ev.TurnInterrupted("m-1", LOST),
        ev.LifeStarted("L2", "m-1", "local", "/run", "here", "2"),
        ev.ModelRequested("b", "k", "L2", "anthropic", "m", "/", whole),
    ]
    sheet = await sheet_of(log)
    found = await around(sheet, item(sheet, "end"))
    assert [one.label for one in found] == [
        "Before: what the model had been told",
        "After: what it was told on return (1 message as before, 1 added)",
        "Message 2 of 2, user",
    ]
    assert found[2].text == "cut off"
    assert (found[0].seq, found[2].seq) == (8, 11)


async def test_the_death_of_a_worker_shows_that_as_well() -> None:
    sheet = await sheet_of(worker_lost())
    before, after, added = (await detail(sheet, item(sheet, "attached"))).texts
    assert "before c1" in before.text
    assert after.label.startswith("After: what it was told on return")
    assert "before c2" in added.text


async def test_a_request_is_put_together_from_what_it_kept() -> None:
    sheet = await sheet_of(everything())
    second = [one.item for one in sheet.rows if one.kind == "model" and one.state == "completed"][1]
    told = [one for one in (await detail(sheet, second)).texts if one.name.startswith("m")]
    assert [(one.text, one.fresh) for one in told if one.name != "m0"] == [
        ("before c1", False),
        ("before c2", True),
    ]
    assert (await body(sheet, second, "m2", 0)).text == "before c2"


async def test_ten_megabytes_in_a_line_come_in_pages() -> None:
    log, blobs = hostile()
    sheet = await sheet_of(log, blobs)
    found = await detail(sheet, item(sheet, "tool"))
    result = next(one for one in found.texts if one.name == "result")
    assert (len(result.text), result.size) == (PAGE, 10 << 20)
    later = await body(sheet, result.seq, "result", result.size - 10)
    assert later.text == "A" * 10
    assert sum(len(msgspec.json.encode(one)) for one in sheet.rows) < 20_000


async def test_a_blob_that_is_gone_is_said_in_its_place() -> None:
    log, _ = hostile()
    sheet = await sheet_of(log)
    found = await detail(sheet, item(sheet, "tool"))
    assert next(one for one in found.texts if one.name == "result").missing


async def test_numbers_of_any_size_stay_as_they_were_written() -> None:
    log: Log = [*everything()[:8]]
    given = b'{"id":9007199254740993,"n":1e400}'
    log.append(ev.ToolRequested("t", "Write", pack(given).payload, "c1", "never", "builtin"))
    sheet = await sheet_of(log)
    shown = (await detail(sheet, 9)).texts[0].text
    assert "9007199254740993" in shown
    assert "1e400" in shown


async def test_what_models_said_is_read_for_the_rows_that_are_looked_at() -> None:
    sheet = await sheet_of(everything())
    calls = [one.item for one in sheet.rows if one.word == "model.completed"]
    said = await said_of(sheet, [*calls[:2], 2])  # the second one was used again, which is a later version
    assert list(said.values()) == ["I run the tests.", "I deploy it."]


async def test_find_looks_into_what_was_said_and_not_into_the_transcript() -> None:
    log = [*everything(), ev.TranscriptAppended("t.jsonl", "L4", text("DEPLOYED 1.4.2"), 1)]
    sheet = await sheet_of(log)
    found = await find(sheet, "deployed 1.4.2", sheet.head + 1)
    kinds = {sheet.at(seq)[0].word for seq in found.seqs}
    assert kinds == {"tool.completed"}
    assert found.before == 0
    assert (await find(sheet, "i look first", sheet.head + 1)).seqs
    assert (await find(sheet, "", sheet.head + 1)).seqs == []


async def test_find_goes_on_where_it_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness_durable.view.find.MOST", 7)
    sheet = await sheet_of(long(900))
    seqs, before = list[int](), sheet.head + 1
    while before:
        found = await find(sheet, "ran 1 test", before)
        seqs, before = seqs + found.seqs, found.before
    expected = [one.seq for one in sheet.rows if one.word == "tool.completed"]
    assert seqs == expected[::-1]


async def frames(stream: AsyncIterator[bytes]) -> AsyncIterator[tuple[str, int, dict[str, object]]]:
    async for frame in stream:
        fields = dict(
            line.split(": ", 1) for line in frame.decode().strip().splitlines() if not line.startswith(":")
        )
        if "event" in fields:
            yield fields["event"], int(fields.get("id", 0)), msgspec.json.decode(fields["data"])


async def test_the_stream_goes_on_after_the_last_seen_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LOOK", 0.01)
    world, log = MemoryWorld(), everything()
    await write(world, "s", log[:10])
    sheet = Sheet(Reader(world, "s"))
    await sheet.refresh()
    told = frames(live.stream(sheet, 4))
    with anyio.fail_after(10):
        kind, number, data = await anext(told)
        assert (kind, number, data["upto"]) == ("rows", 10, 10)
        await world.append("s", expected_head=10, epoch=0, records=records(log)[10:12])
        kind, number, _ = await anext(told)
        assert (kind, number) == ("rows", 12)
        await world.put_progress("s", msgspec.json.encode(Shown("c1", "arriving now")))
        assert await anext(told) == ("progress", 0, {"text": "arriving now"})
    await told.aclose()  # type: ignore[attr-defined]  # an async generator, as written


async def test_damage_hides_nothing_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = MemoryWorld()
    await write(world, "s", everything())
    read = world.read

    async def damaged(session: str, after: int = 0, limit: int | None = None) -> list[StoredRecord]:
        found = await read(session, after, limit)
        good = [record for record in found if record.seq != 20]
        if found and found[0].seq == 20:
            raise DamagedLog("record 20", 0, 1, "its checksum does not match")
        return good if not found or found[-1].seq < 20 or found[0].seq > 20 else good[: 19 - after]

    monkeypatch.setattr(world, "read", damaged)
    sheet = Sheet(Reader(world, "s"))
    await sheet.refresh()
    assert "record 20" in sheet.damage
    assert {one.seq for one in sheet.rows} == set(range(1, len(everything()) + 1)) - {20}


async def test_a_salvaged_file_is_shown_with_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    world = MemoryWorld()
    await write(world, "s", everything())
    whole = world.stored["s"].records
    damage = DamagedLog("record 20", 0, 1, "its checksum does not match")

    async def salvage(_: str) -> Salvage:
        return Salvage([record for record in whole if record.seq != 20], [damage])

    monkeypatch.setattr(world, "salvage", salvage)
    lines, _ = await salvage_session(world, "s")
    log = FileLog(await read_file(lines))
    assert ["record 20" in damage for damage in log.lost] == [True]
    sheet = await Hall(log.world(), lost=log.lost).sheet("s")
    assert {one.seq for one in sheet.rows} == {record.seq for record in whole} - {20}


async def test_the_list_begins_with_those_that_need_a_person() -> None:
    world = MemoryWorld()
    for name, status in (("a", "idle"), ("b", "needs_input"), ("c", "running"), ("d", "waiting")):
        await write(world, name, everything()[:3])
        world.stored[name].row = msgspec.structs.replace(world.stored[name].row, status=status)
    hall = Hall(world)
    listed = (await hall.sessions(0)).sessions
    assert {one.session for one in listed[:2]} == {"b", "d"}
    with pytest.raises(NotFound):
        await hall.sheet("nobody")


async def test_the_list_tells_lives_and_unknown_outcomes() -> None:
    world = MemoryWorld()
    await write(world, "s", everything())
    [listed] = (await Hall(world).sessions(0)).sessions
    assert listed.facts == {"turns": 2, "lives": 5, "unknown": 1, "replays": 1, "tokens": 535}
    assert listed.title == "Prices"


async def test_looking_at_rows_holds_no_bodies() -> None:
    log, blobs = hostile()
    tracemalloc.start()
    try:
        sheet = await sheet_of(log * 1, blobs)
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(20):
            await detail(sheet, item(sheet, "tool"))
        assert tracemalloc.get_traced_memory()[0] - before < 2 << 20
    finally:
        tracemalloc.stop()
