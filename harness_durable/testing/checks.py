"""What every conformance suite hands back: one row for each promise."""

from __future__ import annotations

import msgspec


class CheckResult(msgspec.Struct, frozen=True):
    """``id`` is the promise's number such as ``W3``, ``promise`` its text; ``detail`` says what was seen,
    or why the promise is broken, or which part of it could not be checked here; then ``tried`` is false."""

    id: str
    promise: str
    ok: bool
    detail: str
    tried: bool = True
