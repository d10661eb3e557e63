"""A second process on a World, which the conformance suite drives, stops and kills.

``python -m harness_durable.testing.world_child OPENER URL APP`` reads one command a line from its input and
answers each with one line; it ends when its input does. What surprises: ``Pour`` answers once for every
append and goes on until it is refused, because it exists to be killed in the middle.
"""

from __future__ import annotations

import importlib
import os
import resource
import signal
import sys
import uuid
from collections.abc import Awaitable, Callable
from typing import cast

import anyio
import msgspec

from harness_durable import clock
from harness_durable.errors import Conflict, HarnessDurableError
from harness_durable.world import Claim, Owner, Record, World


class Command(msgspec.Struct, frozen=True, tag=True):
    """``at`` is when to begin, by ``clock.monotonic``: it is one clock for all processes of a host."""

    at: float = 0.0


class Register(Command, frozen=True):
    lease: float = 15.0


class ClaimDue(Command, frozen=True):
    limit: int = 1


class ClaimOne(Command, frozen=True):
    session: str = ""
    take_over: bool = False


class Append(Command, frozen=True):
    session: str = ""
    head: int = 0
    epoch: int = 0
    records: tuple[Record, ...] = ()


class Compete(Command, frozen=True):
    """Append ``count`` records as one who does not drive, taking the new head at every conflict."""

    session: str = ""
    tag: str = ""
    count: int = 1


class Once(Command, frozen=True):
    session: str = ""
    key: str = ""
    tag: str = ""


class Pour(Command, frozen=True):
    """Append batches without end; see :func:`batch` for the record ids."""

    session: str = ""
    head: int = 0
    epoch: int = 0
    tag: str = ""


class FileLimit(Command, frozen=True):
    """Let no file of this process be written past ``size`` bytes: a full disk. None lifts it."""

    size: int | None = None


AnyCommand = Register | ClaimDue | ClaimOne | Append | Compete | Once | Pour | FileLimit


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """``error`` is the name of the error's class. ``heads`` are the places of what was written."""

    error: str = ""
    text: str = ""
    unclear: bool = False
    heads: tuple[int, ...] = ()
    claims: tuple[Claim, ...] = ()
    wrote: bool = False
    owner: Owner | None = None


BATCH = 3
"""Records in one append of ``Pour``: a log that was cut between them was not written as a whole."""


def batch(tag: str, number: int) -> list[Record]:
    """The ``number``-th batch that ``Pour`` writes, with the same ids whoever builds it."""
    return [
        Record(f"{tag}-{number}-{part}", "check.poured", 0, b"%d" % number * 200) for part in range(BATCH)
    ]


def note(body: bytes = b"", kind: str = "check.note", record_id: str = "") -> Record:
    """A record that means nothing."""
    return Record(record_id or uuid.uuid4().hex, kind, clock.now_ms(), body)


async def append_once(world: World, session: str, key: str, body: bytes) -> tuple[bool, int]:
    """Write ``body`` under ``key`` unless that has been done: (did we, its seq). The way in which the
    journal keeps W4: decide on what is there, append by compare-and-set, decide again at a conflict."""
    kind = f"check.once:{key}"
    seen = await world.read(session)
    head = 0
    while True:
        for record in seen:
            if record.kind == kind:
                return False, record.seq
            head = record.seq
        try:
            records = [note(body, kind)]
            return True, await world.append(session, expected_head=head, epoch=0, records=records)
        except Conflict as moved:
            seen = list(moved.records)


async def append_after_all(world: World, session: str, record: Record) -> int:
    """Append as one who does not drive, whatever the head is; the record's seq."""
    head = (await world.session(session)).head
    while True:
        try:
            return await world.append(session, expected_head=head, epoch=0, records=[record])
        except Conflict as moved:
            head = moved.records[-1].seq


class _Child:
    def __init__(self, world: World) -> None:
        self.world = world
        self.owner = Owner(str(uuid.uuid4()), os.uname().nodename, os.getpid())

    async def run(self, command: AnyCommand) -> Reply:
        world = self.world
        match command:
            case Register():
                await world.register(self.owner, command.lease)
                return Reply(owner=self.owner)
            case ClaimDue():
                return Reply(claims=tuple(await world.claim(self.owner, command.limit)))
            case ClaimOne():
                session, force = command.session, command.take_over
                return Reply(claims=(await world.claim_session(self.owner, session, take_over=force),))
            case Append():
                head = await world.append(
                    command.session,
                    expected_head=command.head,
                    epoch=command.epoch,
                    records=command.records,
                )
                return Reply(heads=(head,))
            case Compete():
                notes = [note(b"%d" % n, f"check.{command.tag}") for n in range(command.count)]
                heads = [await append_after_all(world, command.session, each) for each in notes]
                return Reply(heads=tuple(heads))
            case Once():
                body = command.tag.encode()
                wrote, seq = await append_once(world, command.session, command.key, body)
                return Reply(wrote=wrote, heads=(seq,))
            case Pour():
                return await self._pour(command)
            case FileLimit():
                _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
                soft = hard if command.size is None else command.size
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
                return Reply()

    async def _pour(self, command: Pour) -> Reply:
        head, number = command.head, 0
        while True:
            head = await self.world.append(
                command.session,
                expected_head=head,
                epoch=command.epoch,
                records=batch(command.tag, number),
            )
            number += 1
            _say(Reply(heads=(head,)))

    async def answer(self, command: AnyCommand) -> Reply:
        await clock.sleep(max(0.0, command.at - clock.monotonic()))
        try:
            return await self.run(command)
        except HarnessDurableError as error:
            unclear = bool(getattr(error, "unclear", False))
            return Reply(type(error).__name__, str(error), unclear)
        except Exception as error:  # the suite reports it as what the World raised
            return Reply(type(error).__name__, repr(error))


def _say(reply: Reply) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(reply) + b"\n")
    sys.stdout.buffer.flush()


def load_opener(name: str) -> Callable[[str, str], Awaitable[World]]:
    """``module:function``, called with a URL and an app."""
    module, _, attribute = name.partition(":")
    return cast(
        Callable[[str, str], Awaitable[World]],
        getattr(importlib.import_module(module), attribute),
    )


async def main(opener: str, url: str, app: str) -> None:
    """Serve commands until the input ends."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a full file is an error here, not a death
    world = await load_opener(opener)(url, app)
    try:
        child = _Child(world)
        decoder: msgspec.json.Decoder[AnyCommand] = msgspec.json.Decoder(AnyCommand)
        _say(Reply(owner=child.owner))
        async for line in anyio.wrap_file(sys.stdin):
            _say(await child.answer(decoder.decode(line)))
    finally:
        await world.aclose()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3])
