"""What is worth knowing of an event, in pairs of a label and a value."""

from __future__ import annotations

import msgspec

from harness_durable import events as ev
from harness_durable.view.sheet import Sheet


class Fact(msgspec.Struct, frozen=True, array_like=True):
    """``link``: number of an event to go to; 0 for none."""

    seq: int
    label: str
    value: str
    link: int = 0


def facts(sheet: Sheet, entry: ev.Entry) -> list[Fact]:
    """In the order in which a person asks for them."""
    seq, event = entry.seq, entry.event

    def about(**values: object) -> list[Fact]:
        return [
            Fact(seq, label.replace("_", " "), str(value)) for label, value in values.items() if value != ""
        ]

    match event:
        case ev.SessionCreated(agent=agent):
            tools = ", ".join(agent.custom_tools)
            return about(
                agent=f"{agent.adapter} {agent.harness_version}",
                model=agent.model,
                effort=agent.effort or "",
                permission_mode=agent.permission_mode,
                sandbox=agent.sandbox,
                workspace=agent.workspace,
                own_tools=tools,
            )
        case ev.MessageAccepted() | ev.SteerAccepted():
            return about(message_id=event.message)
        case ev.MessageDelivered() | ev.SteerDelivered():
            return about(reached_the_agent_in=_life(sheet, event.life))
        case ev.LifeStarted():
            return about(
                life_id=event.life,
                host=event.host.partition("/")[0],
                sandbox=event.sandbox,
                run_folder=event.run_dir,
            )
        case ev.LifeAttached():
            return about(attached_by=f"worker {event.worker[:8]}")
        case ev.LifeEnded():
            code = "" if event.code is None else event.code
            kills = event.oom_kills or ""
            how = _ENDED.get(event.why, event.why)
            return about(ended=event.reason, how=how, exit_code=code, killed_for_want_of_memory=kills)
        case ev.TurnResumed():
            return about(how=event.rung, life=_life(sheet, event.life)) + [
                Fact(seq, "told", sentence) for sentence in event.told
            ]
        case ev.TurnCompleted() | ev.TurnStarted():
            return about(turn=event.turn)
        case ev.TurnFailed() | ev.TurnCancelled() | ev.TurnNeedsInput() | ev.TurnInterrupted():
            return about(turn=event.turn, reason=event.reason)
        case ev.MessageWithdrawn() | ev.StopRequested():
            return about(by=event.by)
        case ev.SessionForked():
            return about(forked_from=event.parent, at_its_event=event.at, workspace=event.workspace)
        case ev.SessionMoved():
            return about(it_goes_on_in=event.to)
        case ev.SessionClosed() | ev.SessionReleased():
            return about(reason=event.reason)
        case ev.SessionClaimed():
            before = "it may be alive still: it was displaced" if event.displaced else ""
            return about(worker=event.worker, epoch=event.epoch, the_one_before=before)
        case ev.TranscriptReplaced():
            dropped = "all behind them" if event.drop is None else f"{event.drop} behind them"
            return about(
                why=event.reason,
                file=event.file,
                lines=f"the first {event.keep} stay; {event.count} take the place of {dropped}",
                summed_up=", ".join(event.shown or ()),
            )
        case ev.TranscriptAppended():
            return about(file=event.file, lines=event.count)
        case ev.ModelWithheld():
            names = [str(one) for one in event.media]
            first = Fact(
                seq, "the original", "in the request that was refused", sheet.calls.get(event.call, 0)
            )
            return [*about(withheld="; ".join(names), because=event.reason), first]
        case _:
            return _call_facts(sheet, entry)


def _call_facts(sheet: Sheet, entry: ev.Entry) -> list[Fact]:
    seq, event = entry.seq, entry.event
    match event:
        case ev.ModelRequested():
            who = [Fact(seq, "asked in", _life(sheet, event.life)), Fact(seq, "model", event.model)]
            return [*who, Fact(seq, "call", event.call), Fact(seq, "key", event.key)]
        case ev.ModelCompleted():
            usage = event.usage
            tokens = f"{usage.input} in, {usage.output} out"
            tokens += f", {usage.cache_read} from the cache" if usage.cache_read else ""
            stop = [Fact(seq, "stopped because", event.stop_reason)] if event.stop_reason else []
            return [Fact(seq, "answered by", "the provider"), Fact(seq, "tokens", tokens), *stop]
        case ev.ModelFailed():
            status = "no answer" if event.status is None else f"HTTP {event.status}"
            return [Fact(seq, "failed", f"{status}: {event.reason}")]
        case ev.ModelReplayed():
            first = sheet.calls.get(event.call, 0)
            return [
                Fact(seq, "answered by", f"the log, in {_life(sheet, event.life)}; not paid again"),
                Fact(seq, "first answered", "by the provider", first),
            ]
        case ev.ToolRequested():
            asked = sheet.calls.get(event.model_call, 0)
            return [
                Fact(seq, "asked for by", "the model", asked),
                Fact(seq, "replay policy", f"{event.policy}: {_POLICY[event.policy]}"),
                Fact(seq, "tool", "one of ours" if event.origin == "custom" else "the agent's own"),
                Fact(seq, "call", event.call),
            ]
        case ev.ToolReleased():
            key = [Fact(seq, "idempotency key", event.key)] if event.key else []
            return [Fact(seq, "released in", _life(sheet, event.life)), *key]
        case ev.ToolCompleted() | ev.ToolFailed():
            return [Fact(seq, "outcome known from", _SOURCE[event.source])]
        case ev.ToolUnknown():
            unknown = Fact(seq, "outcome", "unknown: it was released, and what came of it was never recorded")
            return [unknown, *_heard(sheet, seq)]
        case ev.ToolNotStarted():
            return [Fact(seq, "outcome", "not started: it never ran")]
        case ev.ToolRefused():
            first = sheet.calls.get(event.repeats, 0)
            return [Fact(seq, "refused once", "it repeats a call whose outcome is unknown", first)]
        case ev.PermissionRequested():
            return [
                Fact(seq, "request", event.request),
                Fact(seq, "call", event.name, sheet.calls.get(event.call, 0)),
            ]
        case ev.WorkspaceCommitted():
            return _files(sheet, seq, event)
        case ev.PermissionResolved():
            answer_words = "allowed" if event.allow else "refused"
            why = f": {event.reason}" if event.reason else ""
            return [Fact(seq, answer_words, f"by {event.by}{why}")]
        case _:
            return []


def _heard(sheet: Sheet, seq: int) -> list[Fact]:
    """Where the model was told of an outcome that is unknown."""
    later = (one for one in sheet.between(seq, sheet.head) if one.kind == "model" and one.item == one.seq)
    told = next(later, None)
    return [Fact(told.seq, "the model heard of it", "in its next request", told.item)] if told else []


def _files(sheet: Sheet, seq: int, event: ev.WorkspaceCommitted) -> list[Fact]:
    facts = [Fact(seq, "because of", event.cause.replace("_", " "), sheet.calls.get(event.call, 0))]
    if event.skipped:
        facts.append(Fact(seq, "not saved", event.skipped))
    counts = f"{event.counts.added} added, {event.counts.modified} modified, {event.counts.removed} removed"
    facts += [Fact(seq, "changed", counts), Fact(seq, "root", event.root or "none")]
    facts += [Fact(seq, "not named here", f"{event.more} more")] if event.more else []
    facts += [Fact(seq, "written to while it was read", path) for path in event.torn]
    facts += [Fact(seq, "left out", f"{one.path}: {one.reason}") for one in event.left_out or ()]
    return facts


_POLICY = {
    "safe": "it may run again",
    "idempotent": "it may run again with the same key",
    "never": "it must not run again by itself",
}
_ENDED = {
    "exit": "its process ended by itself",
    "signal": "its process was ended by a signal",
    "oom": "it was killed because the memory of its sandbox was used up",
    "kill": "it was killed by us",
    "killed": "its sandbox was killed",
    "removed": "its sandbox was removed by somebody",
    "stopped": "its sandbox was stopped",
    "ended": "its sandbox ended by itself",
    "ttl": "no worker came for it in time",
    "shutdown": "a worker ended it",
}
_SOURCE = {
    "hook": "the agent, as it happened",
    "transcript": "the agent's transcript",
    "host": "our tool host, which ran it",
    "probe": "its probe, asked after the crash",
    "recovery": "recovery",
    "stop": "the stop",
}


def _life(sheet: Sheet, name: str) -> str:
    known = sheet.state.lives.get(name)
    return f"life {known.number}" if known is not None else "none"
