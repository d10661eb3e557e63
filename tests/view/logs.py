"""Logs by hand: one in which everything happens, one by a hostile agent, one that is long."""

from __future__ import annotations

from collections.abc import Sequence

from harness_durable import codec
from harness_durable import events as ev
from harness_durable.events import ReplayPolicy, Source, ToolOrigin
from harness_durable.payload import Media, Packed, Payload, pack, pack_text
from harness_durable.world import Record, RowUpdate, World

BEGAN = 1_796_000_000_000
LOST = "lost with its worker"
SETTLED = "the turn was settled"
AGENT = ev.AgentSpec("claude-code", "2.1.0", "a-model", "local", "/shop", custom_tools=("deploy",))

Log = list[ev.AnyEvent]


def text(said: str) -> Payload:
    return pack_text(said).payload


def answer(said: str) -> Payload:
    """What a model says, as its provider streams it."""
    block = '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}'
    delta = pack_text(said).payload.text or ""
    quoted = delta.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    part = f'{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{quoted}"}}}}'
    frames = [("content_block_start", block), ("content_block_delta", part)]
    return text("".join(f"event: {kind}\ndata: {data}\n\n" for kind, data in frames))


def message(role: str, said: str) -> Payload:
    return pack(f'{{"role":"{role}","content":"{said}"}}'.encode()).payload


def model(call: str, life: str, said: str, *tools: str, base: str | None = None, keep: int = 0) -> Log:
    new = (message("user", f"before {call}"),)
    parts = new if base is not None else (pack(b'{"model":"a-model","messages":[]}').payload, *new)
    return [
        ev.ModelRequested(
            call, f"key-{call}", life, "anthropic", "a-model", "/v1/messages", parts, base, keep
        ),
        ev.ModelCompleted(
            call, 200, "text/event-stream", answer(said), "r", "end", ev.Usage(100, 7), tool_calls=tools
        ),
    ]


def asked(
    call: str,
    name: str,
    given: bytes,
    by: str,
    policy: ReplayPolicy = "never",
    origin: ToolOrigin = "builtin",
) -> ev.ToolRequested:
    return ev.ToolRequested(call, name, pack(given).payload, by, policy, origin)


def done(call: str, said: str, source: Source = "hook") -> ev.ToolCompleted:
    return ev.ToolCompleted(call, text(said), source)


def everything() -> Log:
    """Two turns: a crash with an unknown outcome, an answer from the log, a probe, a run under the same id, a
    refused repeat, questions to a person, a planned stop, a worker that attaches, files that change."""
    deploy = b'{"version":"1.4.2"}'
    return [
        ev.SessionCreated(1, "native", AGENT, "Prices"),
        ev.MessageAccepted("m-1", text("Fix the failing test, then deploy.")),
        ev.SessionClaimed(1, "worker-one", "here", 11),
        ev.TurnStarted("m-1"),
        ev.LifeStarted("L1", "m-1", "local", "/run/L1", "here/boot", "2.1.0"),
        ev.MessageDelivered("m-1", "L1"),
        *model("c1", "L1", "I run the tests.", "t1"),
        asked("t1", "Bash", b'{"command":"python -m unittest","description":"tests"}', "c1"),
        ev.PermissionRequested("p-1", "t1", "Bash", "L1"),
        ev.PermissionResolved("p-1", True, "anna"),
        ev.ToolReleased("t1", "L1"),
        ev.ToolFailed("t1", text("1 failed"), "hook"),
        ev.TranscriptAppended("t.jsonl", "L1", text("{}"), 1),
        *model("c2", "L1", "I deploy it.", "t2", "t3", base="c1", keep=2),
        asked("t2", "mcp__durable__deploy", deploy, "c2", origin="custom"),
        asked("t3", "mcp__durable__order", deploy, "c2", origin="custom"),
        ev.ToolReleased("t2", "L1", "key-t2"),
        ev.ToolReleased("t3", "L1", "key-t3"),
        ev.SessionClaimed(2, "worker-two", "there", 22),
        ev.LifeEnded("L1", LOST),
        ev.TurnInterrupted("m-1", LOST),
        ev.ToolUnknown("t2", text("outcome_unknown: look first")),
        done("t3", "ordered", "probe"),
        ev.LifeStarted("L2", "m-1", "local", "/run/L2", "there/boot", "2.1.0"),
        ev.TranscriptReplaced("t.jsonl", 1, text("{}"), 1, "a result was written"),
        ev.TurnResumed(
            "m-1", "L2", "continue", ("mcp__durable__deploy (t2): unknown, it must not be repeated",)
        ),
        ev.ModelReplayed("c2", "L2"),
        ev.SteerAccepted("s-1", "m-1", text("Be careful.")),
        ev.SteerDelivered("s-1", "L2"),
        *model("c3", "L2", "I look first.", "t4", "t5"),
        asked("t4", "Bash", b'{"command":"cat deployments.log"}', "c3", "safe"),
        asked("t5", "mcp__durable__deploy", deploy, "c3", origin="custom"),
        ev.ToolReleased("t4", "L2"),
        ev.ToolRefused("t5", "t2", text("refused once")),
        ev.SessionClaimed(3, "worker-three", "there", 33),
        ev.LifeAttached("L2", "worker-three"),
        ev.LifeEnded("L2", LOST),
        ev.TurnInterrupted("m-1", LOST),
        ev.LifeStarted("L3", "m-1", "local", "/run/L3", "there/boot", "2.1.0"),
        ev.TurnResumed("m-1", "L3", "continue"),
        ev.ToolReleased("t4", "L3"),
        done("t4", "deployed 1.4.2"),
        ev.WorkspaceCommitted(
            "root2",
            "root1",
            "call",
            "t4",
            counts=ev.Counts(1, 1, 0),
            changes=(
                ev.Change("added", "new.txt", new="a" * 64),
                ev.Change("modified", "prices.py", "b", "c"),
            ),
        ),
        ev.ModelRequested("c4", "k", "L3", "anthropic", "a-model", "/v1/messages", (text("x"),)),
        ev.ModelFailed("c4", 529, "overloaded"),
        ev.ModelWithheld("c4", (Media("ab12", "image", "image/png", 10),), "too large"),
        ev.LifeEnded("L3", "a deploy"),
        ev.TurnInterrupted("m-1", "a deploy", planned=True),
        ev.SessionReleased("a deploy"),
        ev.LifeStarted("L4", "m-1", "local", "/run/L4", "there/boot", "2.1.0"),
        ev.TurnResumed("m-1", "L4", "continue"),
        *model("c5", "L4", "It is deployed."),
        ev.TurnCompleted("m-1", text("1.4.2 is deployed.")),
        ev.LifeEnded("L4", SETTLED),
        ev.MessageAccepted("m-2", text("And now?")),
        ev.MessageAccepted("m-3", text("Never mind.")),
        ev.MessageWithdrawn("m-3", "anna"),
        ev.TurnStarted("m-2"),
        ev.LifeStarted("L5", "m-2", "local", "/run/L5", "there/boot", "2.1.0"),
        *model("c6", "L5", "I wait.", "t6", "t7"),
        asked("t6", "Bash", b'{"command":"sleep 100"}', "c6"),
        asked("t7", "Bash", b'{"command":"true"}', "c6"),
        ev.ToolReleased("t6", "L5"),
        ev.StopRequested("m-2", "anna"),
        ev.ToolCancelled("t6", text("cancelled")),
        ev.ToolNotStarted("t7", text("not_started")),
        ev.TurnCancelled("m-2", "stopped by anna"),
        ev.LifeEnded("L5", SETTLED),
        ev.SessionReleased("nothing left to do"),
    ]


def worker_lost() -> Log:
    """A worker dies while a tool of ours runs in it; its agent lives on, and the model runs it again."""
    given = b'{"version":"1.4.2"}'
    return [
        ev.SessionCreated(1, "native", AGENT),
        ev.MessageAccepted("m-1", text("Deploy.")),
        ev.TurnStarted("m-1"),
        ev.LifeStarted("L1", "m-1", "local", "/run/L1", "here/boot", "2.1.0"),
        *model("c1", "L1", "I deploy it.", "t1", "t2"),
        asked("t1", "mcp__durable__deploy", given, "c1", origin="custom"),
        asked("t2", "Bash", b'{"command":"sleep 9"}', "c1"),
        ev.ToolReleased("t2", "L1"),
        ev.ToolReleased("t1", "L1", "key"),
        ev.LifeAttached("L1", "worker-two"),
        ev.ToolUnknown("t1", text("outcome_unknown: look first")),
        ev.TurnResumed("m-1", "L1", "attach"),
        done("t2", ""),
        *model("c2", "L1", "It is not there; I deploy it again.", "t3"),
        asked("t3", "mcp__durable__deploy", given, "c2", origin="custom"),
        ev.ToolReleased("t3", "L1", "key-t3"),
        done("t3", "deployed"),
        ev.TurnCompleted("m-1", text("Deployed.")),
        ev.LifeEnded("L1", SETTLED),
    ]


HOSTILE = (
    "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    "\x1b[31mred\x1b[0m \u202etxt.exe\u202c <svg onload=\"document.title='owned'\"></svg>"
    "[click](javascript:document.title='owned') </script><!-- ]]>"
)


def hostile() -> tuple[Log, dict[str, bytes]]:
    """Whatever an agent can say is said, and 10 MB of it in one line."""
    huge: Packed = pack(b"A" * (10 << 20))
    log: Log = [
        ev.SessionCreated(1, "native", ev.AgentSpec(HOSTILE, "1", HOSTILE, "local", HOSTILE)),
        ev.MessageAccepted("m-1", text(HOSTILE)),
        ev.TurnStarted("m-1"),
        ev.LifeStarted("L1", "m-1", HOSTILE, "/run", HOSTILE, HOSTILE),
        *model("c1", "L1", HOSTILE, "t1"),
        asked("t1", HOSTILE, b'{"command":"<b>x</b>"}', "c1"),
        ev.ToolReleased("t1", "L1"),
        ev.ToolCompleted("t1", huge.payload, "hook"),
        ev.LifeEnded("L1", HOSTILE),
        ev.TurnInterrupted("m-1", HOSTILE),
        ev.TurnFailed("m-1", HOSTILE, HOSTILE),
    ]
    return log, dict(huge.blobs)


def long(count: int) -> Log:
    """Turns of fifty calls each, a crash in the middle of every one."""
    log: Log = [ev.SessionCreated(1, "native", AGENT)]
    life = turn = 0
    while len(log) < count:
        turn += 1
        name = f"turn-{turn}"
        log += [ev.MessageAccepted(name, text(f"Do job {turn}.")), ev.TurnStarted(name)]
        for call in range(50):
            if call % 25 == 0:
                lost: Log = [ev.LifeEnded(f"L{life}", LOST), ev.TurnInterrupted(name, LOST)]
                log += lost if call else []
                life += 1
                log.append(ev.LifeStarted(f"L{life}", name, "local", "/run", "here", "2.1.0"))
                log += [ev.TurnResumed(name, f"L{life}", "continue")] if call else []
            ids = f"c{turn}.{call}", f"t{turn}.{call}"
            log += model(ids[0], f"L{life}", f"Step {call} of job {turn}.", ids[1])
            log += [
                asked(ids[1], "Bash", b'{"command":"python -m unittest"}', ids[0]),
                ev.ToolReleased(ids[1], f"L{life}"),
                done(ids[1], f"Ran 1 test for job {turn}, step {call}. OK"),
            ]
        log += [ev.TurnCompleted(name, text("Done.")), ev.LifeEnded(f"L{life}", SETTLED)]
    return log[:count]


def entries(log: Sequence[ev.AnyEvent], step: int = 250) -> list[ev.Entry]:
    """``step``: ms from one to the next."""
    return [ev.Entry(seq, BEGAN + seq * step, 1, event) for seq, event in enumerate(log, 1)]


def records(log: Sequence[ev.AnyEvent]) -> list[Record]:
    return [
        Record(f"r{entry.seq}", codec.kind_of(entry.event), entry.time, codec.encode(entry.event))
        for entry in entries(log)
    ]


async def write(
    world: World, session: str, log: Sequence[ev.AnyEvent], blobs: dict[str, bytes] | None = None
) -> None:
    """A session with exactly this log."""
    made = records(log)
    await world.create(session, made[:1], RowUpdate("idle", None))
    for head in range(1, len(made), 2000):
        await world.append(
            session, expected_head=head, epoch=0, records=made[head : head + 2000], blobs=blobs or {}
        )
