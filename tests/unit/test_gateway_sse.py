"""Framing of server-sent events: in bytes, whatever the line ends and wherever the chunks are cut."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness_durable.gateway.sse import Frame, Framer

LINES = st.lists(
    st.sampled_from(
        [
            b"data: one",
            b"data:two",
            b"data",
            b"event: ping",
            b": note",
            b"",
            b"",
            b"id: 7",
            "data: 👋é".encode(),
        ]
    ),
    max_size=30,
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


def framed(chunks: Iterable[bytes]) -> tuple[list[Frame], bytes]:
    framer = Framer()
    frames = [frame for chunk in chunks for frame in framer.feed(chunk)]
    return [*frames, *framer.finish()], framer.rest


def cut(body: bytes, places: Iterable[int]) -> list[bytes]:
    borders = [0, *sorted(place % (len(body) + 1) for place in places), len(body)]
    return [body[start:end] for start, end in pairwise(borders)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_an_event_is_its_name_and_its_data_lines(end: bytes) -> None:
    body = end.join([b": hello", b"event: big", b"data: {", b"data: }", b"", b"data:x", b"", b""])

    frames, rest = framed([body])

    assert [(frame.event, frame.data) for frame in frames] == [("big", b"{\n}"), ("", b"x")]
    assert b"".join(frame.raw for frame in frames) + rest == body


def test_an_event_without_data_is_none_and_its_name_is_forgotten() -> None:
    frames, _ = framed([b"event: ping\n\ndata: x\n\n"])

    assert [(frame.event, frame.data) for frame in frames] == [("", b"x")]


def test_a_byte_order_mark_is_no_part_of_the_first_name() -> None:
    frames, _ = framed([b"\xef\xbb\xbfdata: x\n\n"])

    assert [frame.data for frame in frames] == [b"x"]


def test_an_event_without_its_blank_line_is_not_given_out() -> None:
    frames, rest = framed([b"data: x\n\ndata: y\n"])

    assert [frame.data for frame in frames] == [b"x"]
    assert rest == b"data: y\n"


@settings(deadline=None)
@given(lines=LINES, end=ENDS, places=st.lists(st.integers(0, 10_000), max_size=40))
def test_any_cut_gives_the_same_frames_and_loses_no_byte(
    lines: list[bytes], end: bytes, places: list[int]
) -> None:
    body = end.join(lines)
    whole, left = framed([body])

    frames, rest = framed(cut(body, places))

    assert [(frame.event, frame.data) for frame in frames] == [(frame.event, frame.data) for frame in whole]
    assert rest == left
    assert b"".join(frame.raw for frame in frames) + rest == body


@settings(deadline=None)
@given(lines=LINES, end=ENDS)
def test_byte_by_byte_equals_all_at_once(lines: list[bytes], end: bytes) -> None:
    """C140: wherever a character is split."""
    body = end.join(lines)

    assert framed(body[at : at + 1] for at in range(len(body))) == framed([body])


def test_mixed_line_ends_are_each_one_line_end() -> None:
    frames, rest = framed([b"data: a\r\ndata: b\rdata: c\n\r\n"])

    assert [frame.data for frame in frames] == [b"a\nb\nc"]
    assert rest == b""
