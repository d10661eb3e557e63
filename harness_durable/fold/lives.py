"""Runs of a harness, and its transcript."""

from __future__ import annotations

from harness_durable import events as ev
from harness_durable.state import Life, Segment, Session, Transcript


def life(state: Session, entry: ev.Entry, event: ev.LifeStarted | ev.LifeAttached | ev.LifeEnded) -> None:
    if isinstance(event, ev.LifeStarted):
        life = Life(
            event.life,
            len(state.lives) + 1,
            event.turn,
            event.sandbox,
            event.run_dir,
            event.host,
            event.harness_version,
            entry.time,
            [state.worker],
            started_seq=entry.seq,
        )
        state.lives[event.life] = life
        turn = state.turns.get(event.turn)
        if turn is not None:
            turn.lives.append(event.life)
            turn.fruitless += 1
        return
    known = state.lives.get(event.life)
    if known is None:
        return
    if isinstance(event, ev.LifeAttached):
        known.workers.append(event.worker)
    elif known.ended is None:
        known.ended, known.reason, known.code = entry.time, event.reason, event.code
        known.ended_seq, known.why, known.oom_kills = entry.seq, event.why, event.oom_kills


def transcript(state: Session, entry: ev.Entry, event: ev.TranscriptAppended | ev.TranscriptReplaced) -> None:
    transcript = state.transcripts.setdefault(event.file, Transcript(event.file))
    fresh = [Segment(entry.seq, event.count)] if event.count else []
    if isinstance(event, ev.TranscriptAppended):
        state.offsets[event.life] = max(state.offsets.get(event.life, 0), event.offset)
        transcript.segments.extend(fresh)
        return
    behind = [] if event.drop is None else transcript.part(event.keep + event.drop)
    transcript.segments = [*transcript.part(0, event.keep), *fresh, *behind]
    if event.shown is not None:
        transcript.summed_seq, transcript.shown = entry.seq, event.shown
