"""Records a log for this folder: ``python -m tests.histories.record [ADAPTER [NAME]]``, once per format,
adapter, and name for what is new in it.

The demo's first worker is killed with its harness, the second one finishes the turn. What other people wrote
(the harness's prompts and tool descriptions) is replaced by filler of the same length, and what belongs to
this machine by names that mean nothing; the shape of everything stays as it was written."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec

from harness_durable import codec, workspace
from harness_durable.demo.stage import Stage
from harness_durable.demo.story import SESSION, Cast, play
from harness_durable.events import FORMAT, WorkspaceCommitted
from harness_durable.journal import Reader
from harness_durable.journal.reader import entry_of
from harness_durable.payload import Payload, expand, pack
from harness_durable.transfer import export_session
from harness_durable.world import RowUpdate, StoredRecord, World
from harness_durable.worlds import open_world
from tests.histories.summary import summary

HERE = Path(__file__).parent
HOME, HOST = "/home/you/demo", "host"
THEIRS = ("system", "tools", "attachment", "rendered")
"""Members in which a harness keeps what its makers wrote."""

MARK = "<system-reminder>"
"""With it begins what a harness adds to other people's texts."""


def main(adapter: str = "claude-code", name: str = "") -> None:
    target = HERE / f"format-{FORMAT}-{adapter}{name and '-' + name}.jsonl"
    if target.exists():
        sys.exit(f"{target.name} exists; a log that was released is never recorded anew")
    os.environ["HARNESS_DURABLE_WORKSPACE_EXCLUDE"] = "__pycache__"  # compiled files name their machine
    with tempfile.TemporaryDirectory(prefix="hd-history-") as scratch:
        stage = Stage(Path(scratch).resolve() / "demo")
        stage.set_up()
        url = f"sqlite:{stage.root / 'world.db'}"
        with stage.provider() as provider:
            cast_ = Cast(provider, url, adapter, "local", "tool.effect_done", "harness")
            play(stage, cast_, heading=print, say=print)
        anyio.run(_keep, url, f"sqlite:{stage.root / 'clean.db'}", str(stage.root), target)


async def _keep(url: str, clean_url: str, root: str, target: Path) -> None:
    """Write the log and its summary, after the names and the texts of others were taken out."""
    world, clean = await open_world(url), await open_world(clean_url)
    try:
        await _cleaned(world, clean, root)
        lines = [line async for line in export_session(clean, SESSION)]
        expected = await summary(Reader(clean, SESSION))
    finally:
        await world.aclose()
        await clean.aclose()
    await anyio.Path(target).write_bytes(b"".join(lines))
    summed = json.dumps(expected, indent=2, ensure_ascii=False) + "\n"
    await anyio.Path(target.with_suffix(".json")).write_text(summed)


async def _cleaned(world: World, clean: World, root: str) -> None:
    reader, row = Reader(world, SESSION), await world.session(SESSION)
    records: list[StoredRecord] = []
    blobs: dict[str, bytes] = {}
    for record in await world.read(SESSION):
        event = entry_of(record, SESSION).event
        if isinstance(event, WorkspaceCommitted):
            blobs.update(await _files(world, event.root, root))
        changes: dict[str, Any] = {}
        for name in event.__struct_fields__:
            value = getattr(event, name)
            if isinstance(value, Payload):
                changes[name] = await _payload(reader, value, root, blobs)
            elif isinstance(value, tuple) and value and isinstance(value[0], Payload):
                parts = cast(tuple[Payload, ...], value)
                changes[name] = tuple([await _payload(reader, part, root, blobs) for part in parts])
            elif name == "host":
                changes[name] = HOST
        body = codec.encode(msgspec.structs.replace(event, **changes))
        body = body.replace(root.encode(), HOME.encode())
        records.append(msgspec.structs.replace(record, body=body))
    await clean.restore(SESSION, records, blobs, RowUpdate(row.status, row.due))


async def _files(world: World, files: str, root: str) -> dict[str, bytes]:
    """The blobs of a snapshot, as they are: the demo's files name no machine."""
    names = await workspace.names(files, partial(world.blob, SESSION))
    found = {name: await world.blob(SESSION, name) for name in names}
    assert not any(root.encode() in expand(name, stored) for name, stored in found.items())
    return found


async def _payload(reader: Reader, payload: Payload, root: str, blobs: dict[str, bytes]) -> Payload:
    raw = (await reader.content(payload)).replace(root.encode(), HOME.encode())
    raw = b"\n".join(_line(line) for line in raw.split(b"\n"))
    packed = pack(raw, len(raw) - (payload.blob is not None))  # where it was: in the event or in a blob
    blobs.update(packed.blobs)
    return packed.payload


def _line(line: bytes) -> bytes:
    """A line of JSON without what others wrote in it; any other line as it is."""
    try:
        value = json.loads(line)
    except ValueError:
        return line
    if not isinstance(value, dict | list):
        return line
    return msgspec.json.encode(_without(value, _ours))


def _without(value: Any, keep: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return keep(value)
    if isinstance(value, list):
        return [_without(one, keep) for one in cast(list[object], value)]
    if isinstance(value, dict):
        members = cast(dict[str, object], value)
        return {name: _without(one, _filler if name in THEIRS else keep) for name, one in members.items()}
    return value


def _ours(text: str) -> str:
    ours, mark, theirs = text.partition(MARK)
    return ours + _filler(mark + theirs) if mark else text


def _filler(text: str) -> str:
    return "x" * len(text) if " " in text or "\n" in text else text


if __name__ == "__main__":
    main(*sys.argv[1:3])
