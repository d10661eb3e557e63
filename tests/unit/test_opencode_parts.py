"""Parts of the OpenCode adapter that need no harness: names, launch, ends of turns, real conversations."""

from __future__ import annotations

import json
import re
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

from harness_durable.events import AgentSpec
from harness_durable_adapters.common.shapes import Json, mapping, objects, word
from harness_durable_adapters.opencode.conversation import Conversation
from harness_durable_adapters.opencode.events import MESSAGE, PART, lasting, made, read
from harness_durable_adapters.opencode.launch import Start, launch
from harness_durable_adapters.opencode.naming import made as made_id
from harness_durable_adapters.opencode.naming import mark, marked, marked_id, session_id
from harness_durable_adapters.opencode.outcome import failed, gave_up, turn_end
from harness_durable_adapters.opencode.rebuild import Case, rebuild

FILES = Path(__file__).resolve().parents[3] / "shared" / "cases" / "files" / "opencode"
NOW = 1_796_070_390_726
SPEC: Json = {"name": "deploy", "description": "Deploy @PORT@.", "inputSchema": {"type": "object"}}


def start(**agent: object) -> Start:
    known = AgentSpec("opencode", "1", "vendor/model-x", "local", "/work", **agent)  # type: ignore[arg-type]  # fields of its own
    return Start("/bin/opencode", "1", known, "/home/life", "/work", "token-1", [SPEC], "ses_1")


async def content(of: Start, name: str) -> str:
    held = launch(of).files[name]
    return (held if isinstance(held, bytes) else b"".join([piece async for piece in held()])).decode()


def config(of: Start) -> Json:
    held = launch(of).files["config/opencode/opencode.json"]
    assert isinstance(held, bytes)
    return mapping(json.loads(held))


def test_ids_are_sorted_by_time_and_known_by_their_mark() -> None:
    number = marked_id(NOW, mark("native", "m-1"))
    assert marked(number) == mark("native", "m-1") != mark("native", "m-2")
    assert marked_id(NOW, mark("native", "m-2")) < marked_id(NOW + 1, mark("native", "m-1"))
    assert made_id("prt", NOW, "x", 1) < made_id("prt", NOW, "a", 2)
    assert re.fullmatch(r"msg_22e233bc6000[0-9a-f]{14}", number)
    assert len(session_id("native")) == len("ses_") + 26


def test_everything_of_a_life_is_below_its_home_and_nothing_is_fetched() -> None:
    env = launch(start()).env
    places = [value for name, value in env.items() if name.startswith("XDG_") or name in ("HOME", "TMPDIR")]
    assert all(place.startswith("/home/life") for place in places)
    assert env["PWD"] == "/work"
    assert "config/opencode/node_modules/.keep" in launch(start()).files
    assert "token-1" not in {value for name, value in env.items() if name != "OPENCODE_SERVER_PASSWORD"}


def test_what_is_not_named_is_not_offered() -> None:
    rules = mapping(config(start(tools=("bash", "write")))["permission"])
    assert next(iter(rules)) == "*"
    assert {name for name, rule in rules.items() if rule == "deny"} == {"*", "durable_barrier"}
    assert {"bash", "edit", "durable_deploy"} <= {name for name, rule in rules.items() if rule == "allow"}
    assert "question" not in mapping(config(start())["permission"])
    assert "task" not in mapping(config(start(tools=("bash",)))["permission"])


def test_a_subagent_may_not_do_what_the_harness_would_forbid_it() -> None:
    """What is allowed at the top counts for all agents, unless it is taken back for one."""
    agents = mapping(config(start())["agent"])
    assert mapping(mapping(agents["general"])["permission"]) == {"task": "deny", "todowrite": "deny"}
    denied = mapping(mapping(agents["explore"])["permission"])
    assert {"task", "edit", "durable_deploy"} <= {name for name, rule in denied.items() if rule == "deny"}
    assert "bash" not in denied


async def test_texts_of_people_are_not_filled_in() -> None:
    prompt = "say @PORT@ and {env:HOME}"
    with_prompt = start(system_prompt=prompt)
    assert await content(with_prompt, "config/opencode/system-prompt.txt") == prompt
    assert prompt not in json.dumps(config(with_prompt))
    plugin = await content(with_prompt, "config/opencode/harness-durable.js")
    assert "Deploy @PORT@." in plugin
    assert "import " not in plugin.replace("no imports", "")


def test_an_error_is_told_by_its_code() -> None:
    api: Json = {"name": "APIError", "data": {"message": "no", "statusCode": 401, "isRetryable": False}}
    assert (failed(api, None).code, failed(api, None).transient) == ("api_401", False)
    assert failed(api, "Ann").kind == "cancelled"
    assert failed({"name": "UnknownError", "data": {}}, None).code == "UnknownError"
    unknown: Json = {"name": "UnknownError", "data": {"message": "Error: no\n    at a (b:1)"}}
    assert failed(unknown, None).reason == "Error: no"
    assert gave_up(503, "x").transient
    assert not gave_up(429, "x").transient
    assert gave_up(None, "x").code == "connection_failed"


def test_a_turn_is_over_when_its_last_message_is_answered() -> None:
    assert turn_end(_talk(finish="stop"), None) is not None
    for info in ({}, {"finish": "tool-calls"}, {"finish": "stop", "summary": True}, {"parentID": "msg_0"}):
        assert turn_end(_talk(**info), None) is None, info
    assert turn_end(Conversation(), None) is None


def _talk(**info: object) -> Conversation:
    found = Conversation()
    found.take(made("e1", MESSAGE, {"info": {"id": "msg_1", "role": "user"}}))
    answer: Json = {"id": "msg_2", "role": "assistant", "parentID": "msg_1", **info}
    found.take(made("e2", MESSAGE, {"info": answer}))
    return found


def _exported() -> list[bytes]:
    """A conversation as the harness exports it, as lines of ours; none where it is not at hand."""
    file = FILES / "export_subagent_task.json"
    found = objects(mapping(json.loads(file.read_bytes())).get("messages")) if file.exists() else []
    lines: list[bytes] = []
    for one in found:
        lines.append(made("e", MESSAGE, {"info": one["info"]}).raw)
        lines += [made("e", PART, {"part": part}).raw for part in objects(one["parts"])]
    return lines


def test_a_conversation_that_was_exported_is_read_without_loss() -> None:
    rows = [row for line in _exported() if (row := read(line)) is not None]
    assert len(rows) == len(_exported())
    found = Conversation()
    for row in filter(lasting, rows):
        found.take(row)
    kept = [part for said in found.messages.values() for part in said.parts.values()]
    assert len(kept) + len(found.messages) == len(rows)
    case = Case("ses_parent", False, "m", "/work", NOW, [], {})
    assert not any(word(row.data.get("messageID")) for row in rebuild(found, case).rows)


def _older() -> list[Json]:
    """Messages and parts as older versions of the harness stored them: in files, and in a database."""
    found: list[Json] = []
    archive, database = FILES / "storage_v2_and_legacy.tar", FILES / "legacy_opencode.db"
    if archive.exists():
        with tarfile.open(archive) as held:
            files = [held.extractfile(one) for one in held if one.name.endswith(".json")]
            found += [mapping(json.loads(file.read())) for file in files if file is not None]
    if database.exists():
        with closing(sqlite3.connect(f"file:{database}?immutable=1", uri=True)) as connection:
            for (parts,) in connection.execute("select parts from messages"):
                found += objects(json.loads(parts))
    return found


def test_what_older_versions_stored_is_read_without_loss_and_without_a_crash() -> None:
    """Whatever shape it has: as a message and as a part, with what our own rows must have and without it."""
    older = _older()
    found = Conversation()
    for one in older:
        for kind, place in ((MESSAGE, "info"), (PART, "part")):
            row = made("e", kind, {place: one})
            again = read(row.raw)
            assert again is not None
            assert mapping(again.data[place]) == one
            assert isinstance(lasting(again), bool)
            found.take(again)
    assert len(older) in (0, 31)
    rebuild(found, Case("ses_parent", True, "m", "/work", NOW, [], {}))


def test_an_error_that_was_streamed_is_understood() -> None:
    file = FILES / "stream_error.jsonl"
    lines = file.read_bytes().splitlines() if file.exists() else []
    errors = [mapping(json.loads(line).get("error")) for line in lines if line.strip()]
    assert all(failed(error, None).code == "api_429" for error in errors if error)
