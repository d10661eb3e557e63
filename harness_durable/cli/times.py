"""Times that people write, and times that are shown to them: local, as on their clock."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from harness_durable import clock
from harness_durable.errors import BadInput

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def when(at: str | None, delay: str | None) -> datetime | timedelta | None:
    """What ``--at`` or ``--in`` means. Raises ``BadInput``."""
    if at is not None and delay is not None:
        raise BadInput("say --at or --in, not both")
    if delay is not None:
        return _delay(delay)
    return None if at is None else _moment(at, datetime.fromtimestamp(clock.now_ms() / 1000).astimezone())


def shown(ms: int) -> str:
    """A time of the log, for people; with its date."""
    return datetime.fromtimestamp(ms / 1000).astimezone().isoformat(" ", "seconds")


def _delay(text: str) -> timedelta:
    parts = re.fullmatch(r"((\d+)d)?((\d+)h)?((\d+)m)?((\d+)s)?", text)
    if not text or parts is None:
        raise BadInput(f"--in {text!r} is no length of time; use for instance 90s, 10m, 2h30m or 1d")
    numbers = dict(zip("dhms", parts.groups()[1::2], strict=True))
    try:
        return timedelta(**{_UNITS[unit]: int(number) for unit, number in numbers.items() if number})
    except OverflowError:
        raise BadInput(f"--in {text!r} is longer than any calendar; use less") from None


def _moment(text: str, now: datetime) -> datetime:
    """A time of day that is over means tomorrow; a time without a zone is local."""
    try:
        if re.fullmatch(r"\d{1,2}:\d{2}(:\d{2})?", text):
            day = datetime.strptime(text, "%H:%M:%S" if text.count(":") > 1 else "%H:%M")
            found = now.replace(hour=day.hour, minute=day.minute, second=day.second, microsecond=0)
            return found if found > now else found + timedelta(days=1)
        found = datetime.fromisoformat(text)
        return found if found.tzinfo is not None else found.astimezone()
    except (ValueError, OverflowError):
        raise BadInput(
            f"--at {text!r} is no time; use for instance 18:30, 2026-12-24T18:30 or 2026-12-24T18:30Z"
        ) from None
