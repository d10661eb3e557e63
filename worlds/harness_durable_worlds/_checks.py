"""What a database World refuses, and in which words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness_durable.errors import BadInput, NotFound
from harness_durable.world import MAX_BLOB, MAX_RECORD, Record, StoredRecord


def check_sizes(records: Sequence[Record] | Sequence[StoredRecord], blobs: Mapping[str, bytes]) -> None:
    """Raises ``BadInput`` before anything is stored: below all walls of the stores."""
    for record in records:
        if len(record.body) > MAX_RECORD:
            raise BadInput(
                f"record {record.id} ({record.kind}) has {len(record.body)} bytes, "
                f"at most {MAX_RECORD} fit; put its payload into a blob"
            )
    for sha, body in blobs.items():
        if len(body) > MAX_BLOB:
            raise BadInput(f"blob {sha[:12]} has {len(body)} bytes, at most {MAX_BLOB} fit; split it")


def check_dense(session: str, records: Sequence[StoredRecord]) -> None:
    """Raises ``BadInput`` if the records of an import are not numbered 1, 2, 3 …"""
    for place, record in enumerate(records, 1):
        if record.seq != place:
            raise BadInput(
                f"cannot import session {session!r}: record {place} is missing (found {record.seq}); "
                "export the session again"
            )


def no_session(session: str) -> NotFound:
    return NotFound(f"no session {session!r} in this app; `harness-durable sessions` lists those that exist")
