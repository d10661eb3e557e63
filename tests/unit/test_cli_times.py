"""Times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from harness_durable.cli.times import shown, when
from harness_durable.errors import BadInput


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10m", 600), ("2h", 7200), ("1d", 86400), ("1d2h3m4s", 93784), ("0s", 0)],
)
def test_lengths_of_time(text: str, seconds: int) -> None:
    assert when(None, text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "10", "m", "-5m", "5 m", "1.5h", "5m2h", "9" * 30 + "d"])
def test_what_is_no_length_of_time(text: str) -> None:
    with pytest.raises(BadInput, match="--in"):
        when(None, text)


def test_a_moment_with_and_without_a_zone() -> None:
    assert when("2026-12-24T18:30Z", None) == datetime(2026, 12, 24, 18, 30, tzinfo=UTC)
    assert when("2026-12-24T18:30", None) == datetime(2026, 12, 24, 18, 30).astimezone()
    assert when("2026-12-24", None) == datetime(2026, 12, 24).astimezone()


@pytest.mark.parametrize("text", ["00:00", "23:59", "12:00:30"])
def test_a_time_of_day_is_the_next_one(text: str) -> None:
    found = when(text, None)
    now = datetime.now().astimezone()
    assert isinstance(found, datetime)
    assert now < found <= now + timedelta(days=1)
    assert found.strftime("%H:%M:%S").startswith(text)


@pytest.mark.parametrize("text", ["", "soon", "25:00", "12:60", "2026-13-01", "1e9"])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(BadInput, match="--at"):
        when(text, None)


def test_one_of_both() -> None:
    assert when(None, None) is None
    with pytest.raises(BadInput, match="not both"):
        when("18:30", "1h")


def test_a_time_is_shown_with_its_date_and_zone() -> None:
    text = shown(1_800_000_000_999)
    assert datetime.fromisoformat(text) == datetime.fromtimestamp(1_800_000_000, UTC)
