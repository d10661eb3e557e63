"""I1 to I13, checked from the log, the provider's ledger, the effects' ledger and the machine.

Each check yields a sentence per violation. They look at the raw events and not at the fold, so that the fold
cannot vouch for itself.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from harness_durable import events as ev
from harness_durable.gateway import wire
from harness_durable.journal import Reader
from harness_durable.journal.requests import body_of
from harness_durable.payload import expand
from harness_durable.recovery import MAX_FRUITLESS
from harness_durable.state import ModelCall, Session
from harness_durable.testing.provider import wires
from harness_durable.testing.provider.ledger import Ledger, Tally
from harness_durable.testing.provider.messages import Block, Request
from harness_durable.testing.provider.policies import Steps
from harness_durable.workspace import Limits, Scanned, Tracker
from harness_durable.world import World
from tests.crash.scene import KEY, MESSAGE, SESSION, Host, Scene

OUTCOMES = (
    ev.ToolCompleted,
    ev.ToolFailed,
    ev.ToolCancelled,
    ev.ToolNotStarted,
    ev.ToolUnknown,
    ev.ToolRefused,
)
LIFE = re.compile(rb"life-[0-9a-f]{12}")
PRINT = re.compile(rb"(cc_version=\d+\.\d+\.\d+)\.[0-9a-f]{3}\b")
"""Claude Code's version, and behind it a print of the conversation's first message, which is no part of the
agent: a message that was stopped before the harness had written it down is not the first one any more."""
ENDS: Mapping[type[ev.Event], str] = {
    ev.TurnCompleted: "completed",
    ev.TurnFailed: "failed",
    ev.TurnCancelled: "cancelled",
}


class Expectation(msgspec.Struct, frozen=True):
    """What a sound experiment comes to. ``once``: the effects that happened exactly once (None: all of the
    ``Steps``); ``perhaps``: at most once; no other effect happened. ``ends``: how a turn may have ended, by
    its id; every other one is completed."""

    once: tuple[str, ...] | None = None
    perhaps: tuple[str, ...] = ()
    ends: Mapping[str, tuple[str, ...]] = {}


class Report(msgspec.Struct):
    """``recorded``: responses in the log; ``model_calls``: those that were paid; ``lost``: those that were
    paid but not recorded, in the window that nobody can close. ``status`` and ``text`` are the last turn's,
    ``turns`` has the status of each, ``steers`` counts those accepted, and ``outcomes`` the tool calls by
    outcome, ``resumed`` how often a turn went on in other hands, ``persons`` how often one was needed."""

    violations: list[str]
    lives: int
    unknown: int
    recorded: int
    status: str
    text: str
    turns: dict[str, str]
    steers: int
    outcomes: dict[str, int]
    resumed: int
    persons: int
    model_calls: int = 0
    lost: int = 0


async def examine(scene: Scene, expected: Expectation = Expectation()) -> Report:  # noqa: B008 - frozen
    """Everything about a finished experiment with one session."""
    tally = Ledger.read(scene.ledger)
    world = await scene.opened()
    try:
        report = await examine_session(world, SESSION, tally, expected, scene.hosts)
        if MESSAGE not in report.turns:
            report.violations.append("I2: the first message is lost")
        report.violations += [line async for line in _files(world, scene, report)]
    finally:
        await world.aclose()
    report.violations += around(scene, tally, expected)
    report.model_calls = sum(tally.delivered.values())
    report.lost = report.model_calls - report.recorded
    return report


def around(scene: Scene, tally: Tally, expected: Expectation) -> list[str]:
    """What is not a matter of one session: the effects, the provider, processes and files."""
    return [*_effects(scene, expected), *_conversations(tally), *_remains(scene), *_leaks(scene)]


async def examine_session(
    world: World, session: str, tally: Tally, expected: Expectation, hosts: Sequence[Host] = ()
) -> Report:
    """What the log of one session has to say. ``lost`` is not known from it."""
    reader = Reader(world, session)
    entries = [entry async for entry in reader.entries()]
    found = [
        *_messages(entries),
        *_model_calls(entries, tally),
        *_tool_calls(entries),
        *_order(entries),
        *_turns(entries, expected),
        *_lives(entries),
        *[line async for line in _canary(world, session, entries)],
        *[line async for line in _same_agent(reader, hosts)],
        *[line async for line in _whole_conversation(reader)],
    ]
    state = await reader.load()
    last = state.last_turn
    text = await reader.text(last.text) if last is not None and last.text is not None else ""
    return Report(
        violations=found,
        lives=len(state.lives),
        unknown=sum(call.outcome == "unknown" for call in state.tool_calls.values()),
        recorded=sum(isinstance(entry.event, ev.ModelCompleted) for entry in entries),
        status=last.status if last is not None else "none",
        text=text,
        turns={turn.id: turn.status for turn in state.turns.values()},
        steers=sum(message.kind == "steer" for message in state.messages.values()),
        outcomes=dict(Counter(call.outcome or "open" for call in state.tool_calls.values())),
        resumed=sum(isinstance(entry.event, ev.TurnResumed) for entry in entries),
        persons=sum(isinstance(entry.event, ev.TurnNeedsInput) for entry in entries),
    )


def _effects(scene: Scene, expected: Expectation) -> Iterator[str]:
    done = Counter(scene.effects.read_text().split()) if scene.effects.exists() else Counter[str]()
    once = expected.once
    if once is None:
        once = tuple(scene.policy.all_tokens()) if isinstance(scene.policy, Steps) else ()
    for token in {*once, *done}:
        least, most = int(token in once), int(token in once or token in expected.perhaps)
        if not least <= done[token] <= most:
            yield f"I1: the effect {token} happened {done[token]} times"


def _messages(entries: list[ev.Entry]) -> Iterator[str]:
    started = [e.event.turn for e in entries if isinstance(e.event, ev.TurnStarted)]
    accepted = [e.event.message for e in entries if isinstance(e.event, ev.MessageAccepted)]
    if sorted(accepted) != sorted(started):
        yield f"I2: accepted {accepted}, turns started {started}"
    steers = sorted(e.event.message for e in entries if isinstance(e.event, ev.SteerAccepted))
    taken = [e.event for e in entries if isinstance(e.event, ev.SteerDelivered)]
    if steers != sorted(event.message for event in taken):
        yield f"I2: steers accepted {steers}, delivered {[event.message for event in taken]}"
    for event in taken:
        remark = event.message.startswith("restored-")  # of ours: it is of no use in another turn
        if not event.life and not remark and f"{event.message}+queued" not in accepted:
            yield f"I2: the steer {event.message} was neither delivered nor made a message of its own"


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


def _turns(entries: list[ev.Entry], expected: Expectation) -> Iterator[str]:
    ends: defaultdict[str, list[str]] = defaultdict(list)
    stops: set[str] = set()
    fruitless = 0
    for event in (entry.event for entry in entries):
        match event:
            case ev.LifeStarted():
                fruitless += 1
            case ev.ModelCompleted() | ev.ToolCompleted() | ev.ToolFailed():
                fruitless = 0
            case ev.StopRequested(turn):
                stops.add(turn)
            case ev.TurnNeedsInput(turn):
                ends[turn].append("needs_input")
                if fruitless < MAX_FRUITLESS:
                    yield f"I8: a person was asked after {fruitless} lives without progress"
            case ev.TurnResumed(turn) | ev.TurnCancelled(turn) if ends[turn] == ["needs_input"]:
                ends[turn] = [] if isinstance(event, ev.TurnResumed) else ["cancelled"]
            case ev.TurnCompleted(turn) | ev.TurnFailed(turn) | ev.TurnCancelled(turn):
                ends[turn].append(ENDS[type(event)])
            case _:
                pass
    for turn in (e.event.turn for e in entries if isinstance(e.event, ev.TurnStarted)):
        allowed = expected.ends.get(turn, ("completed",))
        if len(ends[turn]) != 1 or ends[turn][0] not in allowed:
            yield f"I8: the turn {turn} ended with {ends[turn]}, not with {allowed}"
        if ends[turn] == ["cancelled"] and turn not in stops:
            yield f"I8: nobody asked for the turn {turn} to be stopped"


def _lives(entries: list[ev.Entry]) -> Iterator[str]:
    started = [e.event.life for e in entries if isinstance(e.event, ev.LifeStarted)]
    ended = [e.event.life for e in entries if isinstance(e.event, ev.LifeEnded)]
    if sorted(started) != sorted(ended):
        yield f"I9: lives started {started}, ended {ended}"


def _remains(scene: Scene) -> Iterator[str]:
    alive = scene.processes()
    if alive:
        yield f"I10: {len(alive)} processes of old lives are left"
    for host in scene.hosts:
        kept = host.run_dir / "sessions"  # what a host keeps beside the log of a session that it had
        left = [p for p in host.run_dir.rglob("*") if p.name not in (".id", "docker")]
        found = (p for p in left if not p.is_relative_to(kept))
        names = [str(p.relative_to(scene.root)) for p in found]
        if names:
            yield f"I10: run directories are left: {names[:5]}"


async def _files(world: World, scene: Scene, report: Report) -> AsyncIterator[str]:
    """The workspace of the host that had the last life is what the log says. A turn that nobody settled says
    nothing of it; one that is lost once the turn is settled is made anew for the next turn only."""
    reader = Reader(world, SESSION)
    events = [entry.event async for entry in reader.entries()]
    roots = [event for event in events if isinstance(event, ev.WorkspaceCommitted)]
    lives = [event for event in events if isinstance(event, ev.LifeStarted)]
    if not roots:
        yield "I13: the log says nothing of the files"
        return
    run_dir = Path(lives[-1].run_dir) if lives else scene.hosts[0].run_dir
    host = next(host for host in scene.hosts if run_dir.is_relative_to(host.run_dir.parent))
    if report.status == "needs_input" or not host.workspace.is_dir():
        return
    if roots[-1].skipped:  # no scene gives a reason for it
        yield f"I13: the files could not be saved: {roots[-1].skipped}"
        return
    found = await seen_files(world, host.workspace, roots[-1].root)
    if found.skipped or found.root != roots[-1].root:
        yield f"I13: the log has files that the workspace has not, or the other way round: {found.changes}"


async def seen_files(world: World, place: Path, root: str) -> Scanned:
    """A workspace as somebody sees it who knows the log alone."""

    async def put(blobs: Mapping[str, bytes]) -> None:
        pass

    async def missing(names: Sequence[str]) -> set[str]:
        return await world.missing_blobs(SESSION, names)

    async def read(name: str) -> bytes:
        return await world.blob(SESSION, name)

    return await Tracker(place, Limits(), cache=None, put=put, missing=missing, read=read).scan(root)


async def _canary(world: World, session: str, entries: list[ev.Entry]) -> AsyncIterator[str]:
    secret = KEY.encode()
    for record in await world.read(session):
        if secret in record.body:
            yield f"I11: the provider's key is in event {record.seq}"
    async for name, stored in world.blobs(session):
        if secret in expand(name, stored):
            yield f"I11: the provider's key is in a blob ({len(entries)} events)"


def _leaks(scene: Scene) -> Iterator[str]:
    """What the workers printed, what lies in the workspace, and whatever else is on the disk."""
    for path in scene.files_with(KEY.encode()):
        yield f"I11: the provider's key is in {path.relative_to(scene.root)}"


def _main_calls(state: Session) -> list[ModelCall]:
    return [call for call in state.model_calls.values() if call.agent is None]


class _Said(msgspec.Struct, frozen=True):
    text: str = ""


class _Frame(msgspec.Struct):
    """Of a request, what makes the agent. Left out is what the harness varies: ``metadata`` has an id of the
    home, cache marks move on with the conversation, and the system prompt names the home by its life."""

    model: str
    tools: list[dict[str, object]] = []
    system: str | list[_Said] = ""
    max_tokens: int = 0
    thinking: dict[str, object] = {}
    output_config: dict[str, object] = {}


async def _same_agent(reader: Reader, hosts: Sequence[Host]) -> AsyncIterator[str]:
    """Where a host has its folders is its own business; what is the same below them must stay the same."""
    state = await reader.load()
    seen: dict[bytes, _Frame] = {}
    for call in _main_calls(state):
        body = LIFE.sub(b"life", await body_of(reader, state, call.id, wire(call.wire).list_field))
        body = PRINT.sub(rb"\1", body)
        for host in hosts:
            body = body.replace(str(host.root).encode(), b"/host")
        frame = msgspec.json.decode(body, type=_Frame)
        frame.tools = [{k: v for k, v in tool.items() if k != "cache_control"} for tool in frame.tools]
        if frame.tools:
            seen[msgspec.json.encode(frame, order="deterministic")] = frame
    first = next(iter(seen.values()), None)
    for other in list(seen.values())[1:]:
        fields = [name for name in _Frame.__struct_fields__ if getattr(first, name) != getattr(other, name)]
        yield f"I12: the agent changed over its lives: {', '.join(fields)}"


async def _whole_conversation(reader: Reader) -> AsyncIterator[str]:
    """The last request of the main loop: every message in its order and once, one result for each call."""
    state = await reader.load()
    requests = [(c, await _request(reader, state, c)) for c in _main_calls(state)]
    asked = [(call, request) for call, request in requests if request.tools]
    if not asked:
        yield "I7: the main loop never asked its model"
        return
    call, request = asked[-1]
    said = "\n".join(_texts(request))
    at = 0
    wanted = [await reader.text(state.messages[m].text) async for m in _told(reader, state, call)]
    for text in wanted:
        if said.count(text) != wanted.count(text):
            yield f"I7: the message {text!r} is in the conversation {said.count(text)} times"
        elif (place := said.find(text, at)) < 0:
            yield f"I7: the message {text!r} is not in its place in the conversation"
        else:
            at = place + len(text)
    uses = Counter(block.id for block in _blocks(request, "tool_use"))
    answers = Counter(block.tool_use_id for block in _blocks(request, "tool_result"))
    if uses != answers or any(count > 1 for count in uses.values()):
        yield f"I7: the calls {dict(uses)} have the results {dict(answers)}"


async def _request(reader: Reader, state: Session, call: ModelCall) -> Request:
    """In the form that policies see, whatever the wire."""
    body = await body_of(reader, state, call.id, wire(call.wire).list_field)
    return wires.named(call.wire).parse(body)


async def _told(reader: Reader, state: Session, last: ModelCall) -> AsyncIterator[str]:
    """Messages that the model must know of, in order. In a turn that was stopped those that had reached the
    harness, before the last call: a stop may well come first."""
    async for entry in reader.entries():
        event = entry.event
        if isinstance(event, ev.TurnStarted):
            message = turn = event.turn
        elif isinstance(event, ev.SteerDelivered) and event.life:
            message, turn = event.message, state.messages[event.message].turn or ""
        else:
            continue
        reached = state.messages[message].status == "delivered" and entry.seq < last.requested_seq
        if reached or state.turns[turn].status == "completed":
            yield message


def _blocks(request: Request, kind: str) -> list[Block]:
    return [block for message in request.messages for block in message.blocks() if block.type == kind]


def _texts(request: Request) -> Iterator[str]:
    """What people said is text, or hangs on a tool's result."""
    for message in request.messages:
        if message.role != "assistant":
            for block in message.blocks():
                yield block.text
                hung = msgspec.convert(block.content or "", str | list[_Said])
                yield hung if isinstance(hung, str) else "\n".join(part.text for part in hung)
