"""What can go wrong, as one tree. Every sentence names the thing, and says what to do next.

    HarnessDurableError
    ├── UsageError                   what was asked for cannot be done as asked (exit 2)
    │   ├── UnknownName              no adapter, World or sandbox of that name
    │   ├── BadSetting               a setting's value cannot be used
    │   ├── BadTool                  a @tool function was declared wrongly
    │   ├── BadInput                 a message, answer or payload that cannot be accepted
    │   └── NotFound                 no such session, turn, blob or file
    ├── SessionBusy                  another live worker holds the session (exit 4)
    ├── StorageError
    │   ├── Conflict                 the log's head moved; carries the records in between
    │   ├── WriterFenced             a newer owner has taken the session; this one must stop
    │   ├── StorageUnavailable       disk full, I/O error, database gone: nothing was half-written
    │   │   └── LeaseLost            a worker could not renew in time, and stopped itself
    │   ├── DamagedLog               records that fail their checksum; says where, hides no neighbour
    │   ├── DamagedWorkspace         a snapshot lacks content; names the paths, keeps the rest
    │   └── LogTooNew                written by a newer version of harness-durable
    ├── SandboxError
    │   ├── SandboxUnavailable       the machinery failed; never shown to a model as a tool's output
    │   │   └── WorkspaceMissing     the session's workspace is not there; a person must put it back
    │   ├── KeeperGone               the keeper (or its container) is no longer there
    │   │   └── KeeperIncompatible   it is there, and speaks a protocol that this version does not know
    │   └── StaleEpoch               the keeper serves a newer worker
    ├── HarnessError
    │   ├── HarnessMissing           the harness's binary is not installed
    │   ├── UnsupportedVersion       this version of the harness is not one that we tested
    │   ├── HarnessDied              the harness ended without settling its turn
    │   └── HarnessStuck             no progress within the deadline
    └── ProviderError                the model provider's answer, or the lack of one

Exit codes of the command line: 0 done, 1 failed, 2 usage, 3 needs a person, 4 held by another writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from harness_durable.world import StoredRecord


class HarnessDurableError(Exception):
    """The root of everything that this package raises on purpose. ``why`` is a word for programs, of those
    that may keep a life from beginning: see ``events.LifeEnded``."""

    exit_code = 1
    why = ""


class UsageError(HarnessDurableError):
    """What was asked for cannot be done as asked."""

    exit_code = 2


class UnknownName(UsageError):
    """A name that no registry knows; the sentence lists the known ones."""

    def __init__(self, what: str, name: str, known: Sequence[str], hint: str = "name one of these") -> None:
        """``hint`` is the next step."""
        self.what, self.name, self.known = what, name, tuple(known)
        super().__init__(f"no {what} named {name!r}; known: {', '.join(known) or 'none'}; {hint}")


class BadSetting(UsageError):
    """A setting that cannot be used as given; the sentence says what would work."""


class BadTool(UsageError):
    """A ``@tool`` function that was declared wrongly."""


class BadInput(UsageError):
    """A message, an answer or a payload that cannot be accepted; nothing was stored."""


class NotFound(UsageError):
    """No such session, turn, blob or file."""


class SessionBusy(HarnessDurableError):
    """Another live worker holds the session.

    ``owner`` is a sentence about the holder; ``lease_left`` is in seconds, by the store's clock.
    """

    exit_code = 4

    def __init__(self, session: str, owner: str, lease_left: float | None) -> None:
        self.session, self.owner, self.lease_left = session, owner, lease_left
        until = "" if lease_left is None else f" (its lease ends in {lease_left:.0f} s unless renewed)"
        super().__init__(
            f"session {session!r} is held by {owner}{until}; wait for it, "
            f"or take it over with `harness-durable recover {session} --take-over`"
        )


class StorageError(HarnessDurableError):
    """The World refused or could not do something."""


class Conflict(StorageError):
    """``expected_head`` is no longer the head; ``records`` are those in between, in order."""

    def __init__(self, session: str, expected_head: int, records: Sequence[StoredRecord]) -> None:
        self.session, self.expected_head, self.records = session, expected_head, tuple(records)
        head = records[-1].seq if records else expected_head
        super().__init__(
            f"session {session!r} has moved from {expected_head} to {head}; "
            "apply the records in between and decide again"
        )


class WriterFenced(StorageError):
    """A newer owner has taken the session. Whoever gets this must stop and write nothing more."""

    exit_code = 4

    def __init__(self, session: str, epoch: int, newer: int | None = None) -> None:
        self.session, self.epoch, self.newer = session, epoch, newer
        by = f"epoch {newer}" if newer is not None else "a newer epoch"
        super().__init__(
            f"epoch {epoch} of session {session!r} was superseded by {by}; "
            "this worker has stopped driving it, the new one continues"
        )


class StorageUnavailable(StorageError):
    """Disk full, I/O error, database gone. Nothing was half-written and no effect follows.

    ``unclear`` is true if the write may have happened (for instance a lost answer to COMMIT): append
    the same records again, with the same record ids, and the World settles it.
    """

    def __init__(self, sentence: str, *, unclear: bool = False) -> None:
        self.unclear = unclear
        super().__init__(sentence)


class LeaseLost(StorageUnavailable):
    """A worker could not renew its lease in time, or the store does not know it any more: it stops driving,
    and begins anew as another worker. The World goes on without it."""


class DamagedLog(StorageError):
    """Records that fail their checksum in the middle of a log. Nothing was overwritten."""

    def __init__(self, where: str, offset: int, length: int | None, remains: str) -> None:
        self.where, self.offset, self.length, self.remains = where, offset, length, remains
        size = "" if length is None else f" ({length} bytes)"
        super().__init__(
            f"{where}: damaged at byte {offset}{size}; {remains}. Nothing was overwritten: "
            "copy the file away and restore it from a backup; "
            "`trace --json` shows what remains, `export --salvage` saves it"
        )


class DamagedWorkspace(StorageError):
    """Content of a snapshot is missing, or is not what its name says. ``damaged`` are paths (escaped) and
    the blobs that they need; ``partial`` is where the rest was put, None if nothing was written."""

    exit_code = 3

    def __init__(self, damaged: Sequence[tuple[str, str]], partial: Path | None) -> None:
        self.damaged, self.partial = tuple(damaged), partial
        shown = ", ".join(f"{path or 'the root'} (blob {name})" for path, name in damaged[:5])
        more = f" and {len(damaged) - 5} more" if len(damaged) > 5 else ""
        rest = "nothing was written" if partial is None else f"the rest is in {str(partial)!r}"
        super().__init__(
            f"the snapshot cannot be restored whole, content is missing or damaged: {shown}{more}; {rest}. "
            "Restore the World from a backup and try again, or go on with the rest by putting it in place"
        )


class LogTooNew(StorageError):
    """The log was written by a newer version of harness-durable."""

    def __init__(self, where: str, found: int | str, known: int) -> None:
        """``found`` is the format's number, or the name of an event that this version does not know."""
        self.found, self.known = found, known
        what = f"events of kind {found!r}" if isinstance(found, str) else f"log format {found}"
        super().__init__(
            f"{where} uses {what}, this version reads formats up to {known}; "
            "upgrade harness-durable (nothing was changed)"
        )


class SandboxError(HarnessDurableError):
    """Something about the place where a harness runs."""


class SandboxUnavailable(SandboxError):
    """The sandbox's machinery failed. It is never reported to a model as a tool's output."""


class WorkspaceMissing(SandboxUnavailable):
    """The session's workspace is not there, or is no folder: nothing that time alone would heal."""

    why = "workspace_missing"


class KeeperGone(SandboxError):
    """The keeper, or its container, is no longer there; the life has ended."""


class KeeperIncompatible(KeeperGone):
    """A keeper of another version of harness-durable. Its life is ended; the turn goes on from the log."""


class StaleEpoch(SandboxError):
    """The keeper already serves a worker with a newer epoch."""

    def __init__(self, epoch: int, current: int) -> None:
        self.epoch, self.current = epoch, current
        super().__init__(f"the keeper serves epoch {current}; epoch {epoch} is too old and must stop driving")


class HarnessError(HarnessDurableError):
    """Something about the harness itself."""


class HarnessMissing(HarnessError):
    """The harness's binary is not installed, or cannot be started."""

    exit_code = 2
    why = "harness_missing"


class UnsupportedVersion(HarnessError):
    """This version of the harness is not one that the adapter was tested with."""

    exit_code = 2


class HarnessDied(HarnessError):
    """The harness ended without settling its turn. ``code`` is its exit code, negative for a signal."""

    def __init__(self, code: int | None, tail: str) -> None:
        self.code, self.tail = code, tail
        super().__init__(f"the harness ended with {code} before its turn was settled: {tail or 'no output'}")


class HarnessStuck(HarnessError):
    """No progress within the deadline; the life is ended and recovered."""


class ProviderError(HarnessDurableError):
    """The model provider's answer, or the lack of one, that ended a turn."""
