"""What ``recover --workspace rollback`` says of the files: what it did with them, or why there was nothing to
do. Read from the log, so that it is true whoever did it."""

from __future__ import annotations

from harness_durable import events as ev
from harness_durable.journal import Reader
from harness_durable.state import Session


def hopeless(state: Session) -> str:
    """Why nothing will be rolled back when this session goes on; nothing if it may be."""
    agent = state.agent
    if agent is not None and agent.files != "durable":
        return f"nothing is rolled back: the files of this session are not in the log (files = {agent.files})"
    if state.turn is None:
        return (
            "nothing is rolled back: no turn had begun whose work could be undone, and the files are left as "
            "they are; `checkout` writes any recorded step elsewhere"
        )
    if not state.files.root:
        return "nothing is rolled back: no step of the files was ever recorded"
    return ""


async def told(reader: Reader, before: Session) -> str:
    """What became of the files since then."""
    kept, root, begun = before.files.seq, before.files.root, False
    async for entry in reader.entries(before.seq):
        match entry.event:
            case ev.WorkspaceCommitted(cause="restored", skipped=why) if why:
                return (
                    "the files were brought to the last recorded step, and could not be looked at since "
                    f"({why}); event {kept} has what lay there before"
                )
            case ev.WorkspaceCommitted(cause="restored") as made if made.root == root:
                return "the files were gone, and were made anew: they are as at the last recorded step"
            case ev.WorkspaceCommitted(cause="restored"):
                return (
                    "the files are as they were at the last recorded step again; what lay there instead is "
                    f"kept at event {kept}: `checkout {reader.session} DIR --at {kept}`"
                )
            case ev.WorkspaceCommitted(skipped="") as found:
                kept, root = entry.seq, found.root
            case ev.LifeStarted():
                begun = True
            case _:
                pass
    if begun:
        return "nothing had to be rolled back: the files were as they were at the last recorded step"
    return "nothing was rolled back: the turn did not go on"
