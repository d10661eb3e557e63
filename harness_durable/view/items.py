"""How the things of a state look now: one row each. Pure."""

from __future__ import annotations

from harness_durable import events as ev
from harness_durable.state import Life, Message, ModelCall, Permission, Session, ToolCall
from harness_durable.view.row import Row, row
from harness_durable.view.words import bare, counted, cut, excerpt, given

_STEER = {False: "You, into the running turn", True: "A note to the model, by harness-durable"}


def message(state: Session, entry: ev.Entry, name: str, word: str = "") -> Row | None:
    """How a message or steer looks now. ``begun`` of one that waits for a time is that time."""
    known: Message | None = state.messages.get(name)
    if known is None:
        return None
    title = "You" if known.kind == "message" else _STEER[known.remark]
    life = number(state, known.delivered_in)
    return row(
        entry,
        known.kind,
        known.status,
        title,
        excerpt(known.text),
        word=word,
        item=known.seq,
        life=life,
        begun=known.not_before,
    )


def life(state: Session, entry: ev.Entry, name: str, word: str = "") -> Row | None:
    """How a life looks now."""
    known: Life | None = state.lives.get(name)
    if known is None:
        return None
    how = {"start": "begins", "attach": "begins"}.get(known.rung, "goes on with the same turn")
    badges = (counted(len(known.workers), "worker"),) if len(known.workers) > 1 else ()
    what = f"{known.sandbox} sandbox on {known.host.partition('/')[0]}, version {known.harness_version}"
    return row(
        entry,
        "life",
        "running" if known.ended is None else "ended",
        f"Life {known.number} {how}",
        cut(what),
        word=word,
        item=known.started_seq,
        life=known.number,
        begun=known.started,
        over=known.ended or 0,
        badges=badges,
    )


def model(state: Session, entry: ev.Entry, name: str, word: str = "") -> Row | None:
    """How a model call looks now. What the model said is in its event, and read when it is looked at."""
    known: ModelCall | None = state.model_calls.get(name)
    if known is None:
        return None
    title = {
        "requested": "Model is asked",
        "completed": "Model",
        "failed": "Model call failed",
        "lost": "Model answer lost",
    }[known.status]
    badges = [f"subagent {cut(known.agent, 40)}"] if known.agent else []
    badges += [f"used again in life {number(state, life)}" for life in known.replays[-1:]]
    return row(
        entry,
        "model",
        known.status,
        title,
        cut(known.reason),
        word=word,
        item=known.requested_seq,
        life=number(state, known.life),
        begun=known.requested,
        over=known.finished or 0,
        badges=tuple(badges),
    )


def tool(state: Session, entry: ev.Entry, name: str, word: str = "") -> Row | None:
    """How a tool call looks now."""
    known: ToolCall | None = state.tool_calls.get(name)
    if known is None:
        return None
    badges = [f"subagent {cut(known.agent, 40)}"] if known.agent else []
    if known.releases > 1:
        badges.append(f"run {known.releases}, same id")
    if known.source in ("probe", "recovery"):
        badges.append(f"outcome by {known.source}")
    asked_in = state.model_calls.get(known.model_call)
    if asked_in is not None and known.released_in not in (None, asked_in.life) and known.releases == 1:
        badges.append(f"asked for in life {number(state, asked_in.life)}")
    return row(
        entry,
        "tool",
        "refused" if known.repeats else known.outcome or ("released" if known.released_in else "requested"),
        cut(bare(known), 60),
        given(known),
        word=word,
        item=known.requested_seq,
        life=number(state, known.released_in or (asked_in.life if asked_in is not None else None)),
        begun=known.released or 0,
        over=known.finished or 0,
        badges=tuple(badges),
    )


def permission(state: Session, entry: ev.Entry, request: str, word: str = "") -> Row | None:
    """How a question to a person looks now."""
    known: Permission | None = state.permissions.get(request)
    if known is None:
        return None
    call = state.tool_calls.get(known.call)
    what = known.name if call is None else f"{bare(call)}: {given(call)}"
    word_now = "asked" if known.allow is None else "allowed" if known.allow else "refused"
    title = "May it run?" if known.allow is None else f"Permission {word_now} by {cut(known.by, 40)}"
    return row(entry, "permission", word_now, title, cut(what), word=word, item=known.asked_seq)


def number(state: Session, name: str | None) -> int:
    """Of a life; 0 for none."""
    known = state.lives.get(name or "")
    return known.number if known is not None else 0
