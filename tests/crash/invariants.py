"""I1 to I12, checked from the log, the provider's ledger, the effects' ledger and the machine.

Each check yields a sentence per violation. They look at the raw events and not at the fold, so that the fold
cannot vouch for itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator

import msgspec

from harness_durable import events as ev
from harness_durable.journal import Reader
from harness_durable.journal.requests import body_of
from harness_durable.payload import expand
from harness_durable.testing.provider.ledger import Ledger, Tally
from harness_durable.world import World
from harness_durable.worlds import open_world
from tests.crash.scene import KEY, MESSAGE, SESSION, Scene

OUTCOMES = (
    ev.ToolCompleted,
    ev.ToolFailed,
    ev.ToolCancelled,
    ev.ToolNotStarted,
    ev.ToolUnknown,
    ev.ToolRefused,
)


class Report(msgspec.Struct):
    """``lost``: responses that were paid but not recorded, in the window that nobody can close."""

    violations: list[str]
    lives: int
    unknown: int
    model_calls: int
    lost: int
    status: str


async def examine(scene: Scene) -> Report:
    """Everything about a finished experiment."""
    world = await open_world(scene.world)
    try:
        reader = Reader(world, SESSION)
        entries = [entry async for entry in reader.entries()]
        tally = Ledger.read(scene.ledger)
        found = [
            *_effects(scene),
            *_messages(entries),
            *_model_calls(entries, tally),
            *_tool_calls(entries),
            *_order(entries),
            *_conversations(tally),
            *_turns(entries),
            *_lives(entries),
            *_remains(scene),
            *[line async for line in _canary(world, entries)],
            *[line async for line in _same_agent(reader)],
        ]
        state = await reader.load()
    finally:
        await world.aclose()
    completed = sum(isinstance(entry.event, ev.ModelCompleted) for entry in entries)
    return Report(
        violations=found,
        lives=len(state.lives),
        unknown=sum(call.outcome == "unknown" for call in state.tool_calls.values()),
        model_calls=sum(tally.delivered.values()),
        lost=sum(tally.delivered.values()) - completed,
        status=state.last_turn.status if state.last_turn is not None else "none",
    )


def _effects(scene: Scene) -> Iterator[str]:
    done = Counter(scene.effects.read_text().split()) if scene.effects.exists() else Counter[str]()
    for token in scene.policy.all_tokens():
        if done[token] != 1:
            yield f"I1: the effect {token} happened {done[token]} times"


def _messages(entries: list[ev.Entry]) -> Iterator[str]:
    started = [e.event.turn for e in entries if isinstance(e.event, ev.TurnStarted)]
    accepted = [e.event.message for e in entries if isinstance(e.event, ev.MessageAccepted)]
    if MESSAGE not in accepted or sorted(accepted) != sorted(started):
        yield f"I2: accepted {accepted}, turns started {started}"
    steers = {e.event.message for e in entries if isinstance(e.event, ev.SteerAccepted)}
    taken = {e.event.message for e in entries if isinstance(e.event, ev.SteerDelivered)}
    if steers != taken:
        yield f"I2: steers accepted {sorted(steers)}, delivered {sorted(taken)}"


def _model_calls(entries: list[ev.Entry], tally: Tally) -> Iterator[str]:
    keys = {line.message_id: line.key for line in tally.lines if line.kind == "delivered"}
    recorded = Counter(
        keys.get(e.event.response_id, "") for e in entries if isinstance(e.event, ev.ModelCompleted)
    )
    for key, count in recorded.items():
        if not key:
            yield f"I3: {count} recorded responses are not in the provider's ledger"
        elif count > 1:
            yield f"I3: a response was recorded and then paid again ({count} times, key {key[:8]})"


def _tool_calls(entries: list[ev.Entry]) -> Iterator[str]:
    requested = {e.event.call for e in entries if isinstance(e.event, ev.ToolRequested)}
    outcomes: defaultdict[str, list[str]] = defaultdict(list)
    released: set[str] = set()
    for entry in entries:
        event = entry.event
        if isinstance(event, ev.ToolReleased):
            released.add(event.call)
            if outcomes[event.call]:
                yield f"I5: {event.call} was released after its outcome"
        elif isinstance(event, OUTCOMES):
            outcomes[event.call].append(type(event).__name__)
            if isinstance(event, ev.ToolUnknown) and event.call not in released:
                yield f"I5: {event.call} is unknown, and was never released"
            if isinstance(event, ev.ToolNotStarted) and event.call in released:
                policy = next(
                    e.event.policy
                    for e in entries
                    if isinstance(e.event, ev.ToolRequested) and e.event.call == event.call
                )
                if policy != "safe":
                    yield f"I5: {event.call} is said not to have started, and was released"
    for call in requested:
        if len(outcomes[call]) != 1:
            yield f"I4: {call} has the outcomes {outcomes[call]}"


def _order(entries: list[ev.Entry]) -> Iterator[str]:
    if [entry.seq for entry in entries] != list(range(1, len(entries) + 1)):
        yield "I6: the log has a hole"
    epoch = 0
    for entry in entries:
        if isinstance(entry.event, ev.SessionClaimed):
            if entry.event.epoch <= epoch:
                yield f"I6: epoch {entry.event.epoch} was claimed after {epoch}"
            epoch = entry.event.epoch
        elif entry.epoch not in (0, epoch):
            yield f"I6: event {entry.seq} was written by epoch {entry.epoch} in epoch {epoch}"


def _conversations(tally: Tally) -> Iterator[str]:
    for line in tally.lines:
        if line.kind == "refused":
            yield f"I7: the provider refused a conversation: {line.note}"


def _turns(entries: list[ev.Entry]) -> Iterator[str]:
    ends = [type(e.event).__name__ for e in entries if isinstance(e.event, ev.TurnCompleted | ev.TurnFailed)]
    begun = sum(isinstance(e.event, ev.TurnStarted) for e in entries)
    if ends != ["TurnCompleted"] * begun:
        yield f"I8: {begun} turn(s) ended with {ends}"


def _lives(entries: list[ev.Entry]) -> Iterator[str]:
    started = [e.event.life for e in entries if isinstance(e.event, ev.LifeStarted)]
    ended = [e.event.life for e in entries if isinstance(e.event, ev.LifeEnded)]
    if sorted(started) != sorted(ended):
        yield f"I9: lives started {started}, ended {ended}"


def _remains(scene: Scene) -> Iterator[str]:
    left = scene.processes()
    if left:
        yield f"I10: {len(left)} processes of old lives are left"
    if scene.run_dir.exists():
        names = [str(path.relative_to(scene.run_dir)) for path in scene.run_dir.rglob("*")]
        if names:
            yield f"I10: run directories are left: {names[:5]}"


async def _canary(world: World, entries: list[ev.Entry]) -> AsyncIterator[str]:
    secret = KEY.encode()
    for record in await world.read(SESSION):
        if secret in record.body:
            yield f"I11: the provider's key is in event {record.seq}"
    async for name, stored in world.blobs(SESSION):
        if secret in expand(name, stored):
            yield f"I11: the provider's key is in a blob ({len(entries)} events)"


class _Frame(msgspec.Struct):
    model: str
    tools: list[dict[str, object]] = []


async def _same_agent(reader: Reader) -> AsyncIterator[str]:
    state = await reader.load()
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for call in state.model_calls.values():
        if call.agent is None:
            frame = msgspec.json.decode(await body_of(reader, state, call.id, "messages"), type=_Frame)
            names = tuple(str(tool.get("name")) for tool in frame.tools)
            if names:
                seen.add((frame.model, names))
    if len(seen) > 1:
        yield f"I12: the agent changed over its lives: {seen}"
