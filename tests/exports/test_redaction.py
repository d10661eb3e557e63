"""What must not be seen is in no export, however it was written down."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_durable import events as ev
from harness_durable.errors import BadInput
from harness_durable.exports import Redaction
from harness_durable.exports.fields import CONTENT, NAMES, WORDS
from harness_durable.exports.redaction import MARK
from harness_durable.payload import Payload, pack
from tests.exports.kit import KINDS, Bodies, codec_name, exported, made, world_of

SECRET = 'pässwört-"42"/\\☃😀'
PATTERN = r"pässwört-\"42\"/\\☃😀"


def everywhere(secret: str) -> list[str]:
    """A secret as it gets into logs: bare, in JSON, in JSON within JSON, with and without ASCII only."""
    plain, whole = json.dumps({"a": secret}), json.dumps({"a": secret}, ensure_ascii=False)
    return [secret, plain, whole, json.dumps([plain]), json.dumps([whole], ensure_ascii=False)]


@pytest.mark.parametrize("text", everywhere(SECRET))
def test_a_pattern_finds_what_it_means_also_behind_escapes(text: str) -> None:
    redacted = Redaction([PATTERN]).text(f"before {text} after")
    assert redacted.startswith("before ") and redacted.endswith(" after")
    assert MARK in redacted
    for trace in ("42", "ssw", "u2603", "☃"):
        assert trace not in redacted


def test_json_stays_json() -> None:
    text = json.dumps({"a": f"x {SECRET} y", "b": [json.dumps({"c": SECRET})]})
    assert json.loads(Redaction([PATTERN]).text(text)) == {
        "a": f"x {MARK} y",
        "b": [json.dumps({"c": MARK})],
    }


@pytest.mark.parametrize("size", [1, 2, 5])
def test_what_arrived_in_pieces_is_found_and_the_stream_can_still_be_read(size: int) -> None:
    said = f"the word is {SECRET}, I say"
    pieces = [said[at : at + size] for at in range(0, len(said), size)]
    lines = [
        'data: {"type":"content_block_delta","index":0,"delta":'
        + json.dumps({"type": "text_delta", "text": one})
        + "}"
        for one in pieces
    ]
    redacted = Redaction([PATTERN]).text("\n\n".join(lines))
    again = [json.loads(line.removeprefix("data: ")) for line in redacted.split("\n\n")]
    assert "".join(one["delta"]["text"] for one in again) == f"the word is {MARK}, I say"
    assert [one["delta"]["type"] for one in again] == ["text_delta"] * len(pieces)


def test_pieces_of_a_call_s_input_that_is_json_itself_are_found() -> None:
    given = json.dumps({"command": f"login {SECRET}"})
    lines = [
        'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":'
        + json.dumps({"arguments": given[at : at + 3]})
        + "}]}}]}"
        for at in range(0, len(given), 3)
    ]
    redacted = Redaction([PATTERN]).text("\n\n".join(lines))
    parts = [
        json.loads(line.removeprefix("data: "))["choices"][0]["delta"] for line in redacted.split("\n\n")
    ]
    joined = "".join(part["tool_calls"][0]["function"]["arguments"] for part in parts)
    assert json.loads(joined) == {"command": f"login {MARK}"}


def test_two_texts_that_grow_at_once_are_not_mixed() -> None:
    line = 'data: {"index":%d,"delta":{"text":"%s"}}'
    text = "\n".join([line % (0, "sec"), line % (1, "ret"), line % (1, "sec"), line % (0, "ond")])
    assert Redaction(["secret"]).text(text) == text


@given(st.text(), st.text(min_size=1), st.text())
def test_a_secret_is_gone_whatever_stands_around_it(before: str, secret: str, after: str) -> None:
    import re

    redaction = Redaction([re.escape(secret)])
    for text in everywhere(before + secret + after):
        try:
            shown = json.loads(redaction.text(text))
        except ValueError:
            continue
        said = json.dumps(shown, ensure_ascii=False).replace(MARK, "")
        assert secret not in said or secret in '{"a": }[]\\'


CREDENTIALS = {
    "anthropic": "sk-ant-api03-" + "Ab1_" * 12,
    "openai": "sk-proj-" + "Zz9-" * 12,
    "aws": "AKIA" + "ABCD1234EFGH5678",
    "github": "ghp_" + "a1B2" * 9,
    "github, fine": "github_pat_" + "11AA_" * 10,
    "gitlab": "glpat-" + "x1y2z3w4v5u6t7s8r9q0",
    "slack": "xoxb-" + "123456789012-abcdefABCDEF",
    "google": "AIza" + "Sy" + "A1b2-" * 7,
    "stripe": "sk_live_" + "a1B2c3D4e5F6g7H8",
    "token": "eyJ" + "hbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0In0" + ".c2lnbmF0dXJl",
    "bearer": "Bearer " + "abcdef0123456789",
    "hugging face": "hf_" + "AbCdEfGhIjKlMnOpQrStUv",
    "npm": "npm_" + "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789",
    "header": "x-api-key: " + "0123456789abcdef",
    "key": "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAKC/+=\n-----END RSA PRIVATE KEY-----",
    "cut key": "-----BEGIN PRIVATE KEY-----\nMIIEowIBAAKC",
}


@pytest.mark.parametrize("name", CREDENTIALS)
def test_credentials_are_taken_out_without_being_asked(name: str) -> None:
    secret = CREDENTIALS[name]
    for text in everywhere(f"use {secret} for it"):
        redacted = Redaction().text(text)
        assert secret not in redacted
        assert secret[-12:] not in redacted


def test_the_password_of_a_url_is_taken_out_and_the_place_stays() -> None:
    redacted = Redaction().text("open postgresql://app:hunter2@db.example/prod now")
    assert redacted == f"open postgresql://{MARK}@db.example/prod now"


@pytest.mark.parametrize(
    "text", ["max_tokens: 4096", "risk-assessment-of-a-long-word", "eyJ", "https://example.com/a:b", "sk-1"]
)
def test_what_is_no_credential_stays(text: str) -> None:
    assert Redaction().text(text) == text


def test_a_megabyte_that_is_made_to_be_slow_is_looked_through() -> None:
    text = json.dumps(['a\\nb"c' * 20_000, "eyJ" * 200_000, "-----BEGIN PRIVATE KEY-----" * 2])
    assert len(Redaction(["nothing like it"]).text(text)) <= len(text)


def test_two_names_that_hold_secrets_stay_two() -> None:
    redaction = Redaction(["cust-[0-9]+"])
    names = [redaction.name(name) for name in ("cust-1/a", "cust-2/a", "cust-1/b")]
    assert names == ["[redacted 1]/a", "[redacted 2]/a", "[redacted 1]/b"]


def test_bytes_that_are_no_text_come_through() -> None:
    assert Redaction(["secret"]).bytes(b"\xff\x00secret\xfe") == b"\xff\x00" + MARK.encode() + b"\xfe"


@pytest.mark.parametrize("pattern", ["(", "[", "a{2,1}"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(BadInput, match="--redact"):
        Redaction([pattern])


def test_a_pattern_that_matches_nothing_at_all_changes_nothing() -> None:
    assert Redaction(["x*"]).text("abc") == "abc"


# ------------------------------------------------------------------------- every field of every kind


def test_every_field_of_every_kind_has_its_place() -> None:
    """Or else: say in ``exports.fields`` if the new one is a name or what somebody said."""
    seen: set[str] = set()

    def choose(_: str, name: str) -> str:
        seen.add(name)
        return "x"

    def body(_: str) -> Payload:
        return Payload(0)

    for kind in KINDS:
        made(kind, choose, body)
    assert seen - NAMES - CONTENT - WORDS == set()
    assert NAMES.isdisjoint(CONTENT | WORDS) and CONTENT.isdisjoint(WORDS)


def planted(secret: str, fields: frozenset[str]) -> tuple[list[ev.AnyEvent], Bodies, int]:
    """Every kind of event, its ids in order, with a secret in each payload and each of these fields."""
    bodies, count = Bodies(), 0

    def choose(kind: str, name: str) -> str:
        nonlocal count
        if name not in fields:
            return "anthropic" if name == "wire" else f"{name}-1"
        count += 1
        return f"{name} {secret}"

    def body(name: str) -> Payload:
        nonlocal count
        count += 1
        texts = everywhere(secret)
        return bodies((f"{name} " + texts[count % len(texts)]).encode(), inline=count % 3 * 100)

    log = [made(kind, choose, body) for kind in KINDS]
    return log, bodies, count


def left(secret: str, found: bytes) -> list[str]:
    return [trace for trace in (secret, json.dumps(secret)[1:-1]) if trace.encode() in found]


async def test_a_secret_in_any_place_of_any_event_is_in_no_export() -> None:
    secret = "hunter2-☃"
    log, bodies, count = planted(secret, NAMES | CONTENT)
    assert count > 120
    world = await world_of(log, bodies.blobs)
    for name, whole in (await exported(world, Redaction())).items():
        assert left(secret, whole), name
    for name, found in (await exported(world, Redaction(["hunter2-☃"]))).items():
        assert not left(secret, found), name
        assert b"hunter2" not in found


async def test_without_content_nothing_that_was_said_is_in_any_export_and_the_structure_is() -> None:
    secret = "said-by-somebody"
    log, bodies, _ = planted(secret, CONTENT)
    world = await world_of(log, bodies.blobs)
    for name, found in (await exported(world, Redaction(content=False))).items():
        assert secret.encode() not in found, name
    found = await exported(world, Redaction(content=False))
    assert found["jsonl"].count(b"\n") == len(KINDS)
    assert all(f'"kind":"{codec_name(kind)}"'.encode() in found["jsonl"] for kind in KINDS)
    sizes = [one.size for one in (getattr(event, "result", None) for event in log) if one is not None]
    assert all(f'{{"size":{size}}}'.encode() in found["jsonl"] for size in sizes)


async def test_a_credential_is_in_no_export_of_any_event() -> None:
    secret = CREDENTIALS["anthropic"]
    log, bodies, _ = planted(secret, NAMES | CONTENT)
    for name, found in (await exported(await world_of(log, bodies.blobs), Redaction())).items():
        assert b"sk-ant" not in found, name


async def test_bodies_are_resolved_and_those_that_are_no_text_are_base64() -> None:
    bodies = Bodies()
    log: list[ev.AnyEvent] = [
        ev.SessionCreated(1, "n", ev.AgentSpec("a", "1", "m", "local", "/w")),
        ev.MessageAccepted("m-1", bodies(b"x" * 50_000)),
        ev.MessageAccepted("m-2", pack(b"\xff\x00").payload),
    ]
    found = (await exported(await world_of(log, bodies.blobs), Redaction()))["jsonl"].splitlines()
    assert json.loads(found[1])["text"] == {"size": 50_000, "text": "x" * 50_000}
    assert json.loads(found[2])["text"] == {"size": 2, "data": "/wA="}
