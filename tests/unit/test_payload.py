"""Payloads: bytes come back exactly as they went in."""

from __future__ import annotations

import hashlib
import json
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_durable.errors import DamagedLog
from harness_durable.payload import INLINE, Packed, Packing, Payload, clean, compress, expand, pack, pack_text


def back(packed: Packed) -> bytes:
    """Through the log's JSON and out again."""
    payload = msgspec.json.decode(msgspec.json.encode(packed.payload), type=Payload)
    if payload.inline is not None:
        return payload.inline
    assert payload.blob is not None
    return expand(payload.blob, packed.blobs[payload.blob])


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\0",
        b"a\0b\r\nc\rd\n",
        rb'{"half":"\ud83d","id":9007199254740993001,"f":1.0,"e":1E400}',
        b'{"a": 1,  "a": 2}',
        b"\xff\xfe\x00latin \xe9",
        "ä😀 \u2028\u2029 é".encode(),
        b'"\\u0000\\"',
        b"x" * INLINE,
        b"x" * (INLINE + 1),
        b"\xff" * (INLINE + 1),
    ],
)
def test_bytes_come_back_as_they_went_in(raw: bytes) -> None:
    packed = pack(raw)
    assert back(packed) == raw
    assert packed.payload.size == len(raw)


@pytest.mark.parametrize("size", [0, 1, INLINE - 1, INLINE, INLINE + 1, 5 * INLINE])
@pytest.mark.parametrize("piece", [7, 1000, INLINE, 6 * INLINE])
@pytest.mark.parametrize("fill", ["text", "noise"])
def test_what_is_packed_piece_by_piece_is_what_is_packed_at_once(size: int, piece: int, fill: str) -> None:
    chance = random.Random(size)
    raw = ("ein Wort, " * size).encode()[:size] if fill == "text" else chance.randbytes(size)
    packing = Packing()
    for start in range(0, size, piece):
        packing.add(raw[start : start + piece])
    packed = packing.packed(raw)
    assert packed.payload == pack(raw).payload
    assert back(packed) == raw
    stored, plain = ([len(blob) for blob in each.blobs.values()] for each in (packed, pack(raw)))
    assert stored == pytest.approx(plain, rel=0.01)


def test_a_body_that_is_not_its_pieces_is_packed_as_it_is() -> None:
    packing = Packing()
    packing.add(b"a" * 2 * INLINE)
    assert packing.packed(b"b" * 3 * INLINE) == pack(b"b" * 3 * INLINE)


@given(st.binary(max_size=2000))
def test_any_bytes_come_back(raw: bytes) -> None:
    assert back(pack(raw)) == raw


@given(st.text(max_size=500))
def test_any_text_comes_back(text: str) -> None:
    assert back(pack_text(text)) == text.encode()


@pytest.mark.parametrize("fill", ["random", "same"])
def test_64_mib_come_back(fill: str) -> None:
    """C013: a large record is stored by reference."""
    raw = b"ab" * (32 << 20) if fill == "same" else random.Random(1).randbytes(64 << 20)
    packed = pack(raw)
    assert hashlib.sha256(back(packed)).digest() == hashlib.sha256(raw).digest()
    assert packed.payload.blob == hashlib.sha256(raw).hexdigest()
    assert len(msgspec.json.encode(packed.payload)) < 2000


def test_exactly_one_form_is_used_and_it_is_the_most_readable() -> None:
    assert pack(b"text").payload == Payload(4, text="text")
    assert pack(b"\xff").payload == Payload(1, data=b"\xff")
    large = pack("ä".encode() * INLINE).payload
    assert (large.text, large.data, large.preview) == (None, None, "ä" * 200)


def test_equal_bytes_are_one_blob() -> None:
    raw = b"y" * (INLINE + 1)
    assert pack(raw).blobs == pack(bytes(raw)).blobs


@given(st.binary(max_size=500))
def test_compression_never_adds_more_than_its_mark(raw: bytes) -> None:
    stored = compress(raw)
    assert len(stored) <= len(raw) + 1
    assert expand(hashlib.sha256(raw).hexdigest(), stored) == raw


@pytest.mark.parametrize("stored", [b"", b"z", b"znonsense", b"rother", compress(b"content")[:-1]])
def test_a_damaged_blob_is_named(stored: bytes) -> None:
    name = hashlib.sha256(b"content").hexdigest()
    with pytest.raises(DamagedLog, match=name):
        expand(name, stored)


def test_lone_surrogates_are_replaced_and_pairs_are_kept() -> None:
    assert clean("a\ud83db") == "a\ufffdb"
    assert clean("\ude00") == "\ufffd"
    assert clean("\ud83d\ude00") == "😀"
    assert clean(json.loads('"\\ud83d\\ude00 \\ud83d"')) == "😀 \ufffd"


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=200))
def test_clean_leaves_good_text_alone(text: str) -> None:
    assert clean(text) == text
