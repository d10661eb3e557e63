"""What comes over the wire: the same message in every style, and every other path of the server."""

from __future__ import annotations

import asyncio
import json
import zlib

import httpx
import pytest

from harness_durable.testing.provider import (
    Reply,
    ScriptedProvider,
    Style,
    Text,
    Thinking,
    ToolUse,
    Usage,
    fingerprint,
    say,
)
from harness_durable.testing.provider.encode import to_json
from tests.unit.provider_kit import ask, body, hear, sse

INPUT: dict[str, object] = {
    "command": "echo 'Grüße 🎉 \\ \"quoted\"'\n\t\u0000",
    "id": 2**60 + 1,
    "half": "\ud83d",
    "nested": {"list": [1, None, True, "é"]},
}
BLOCKS = (
    Thinking("let me think 思考", "c2ln"),
    Text("Grüße 🎉, ich führe es aus.\r\n" * 3),
    ToolUse("Bash", INPUT, id="toolu_1"),
    ToolUse("Read", {}, id="toolu_2"),
)
STYLES = {
    "tidy": Style(),
    "pretty": Style(pretty=True),
    "escaped": Style(escape=True, split_input=1),
    "each character": Style(split_text=1, split_input=1),
    "each byte": Style(split_bytes=1),
    "seven bytes": Style(split_bytes=7, seed=4),
    "large pieces": Style(split_bytes=5000, seed=2),
    "noise": Style(pings=True, comments=True, padding=True, seed=1),
    "crlf": Style(crlf=True, pings=True, split_bytes=2),
    "gzip": Style(gzip=True),
    "all": Style(9, True, True, 3, 2, 5, True, True, True, True, True, 0.001, 0.0001),
}


def answer(style: Style | None = None) -> Reply:
    return Reply(BLOCKS, style=style)


@pytest.mark.parametrize("name", STYLES)
async def test_every_style_says_the_same(name: str) -> None:
    async with ScriptedProvider(lambda _: answer(STYLES[name])) as provider:
        response = await ask(provider)
    heard = hear(response.content)
    thinking, text, bash, read = heard.blocks
    assert (thinking.text, thinking.signature) == ("let me think 思考", "c2ln")
    assert text.text == "Grüße 🎉, ich führe es aus.\r\n" * 3
    assert (bash.id, bash.name, read.id, read.name) == ("toolu_1", "Bash", "toolu_2", "Read")
    assert json.loads(bash.text) == INPUT
    assert json.loads(read.text) == {}
    assert (heard.stop_reason, heard.finished) == ("tool_use", True)


async def test_styles_really_differ_on_the_wire() -> None:
    seen: dict[str, httpx.Response] = {}
    for name, style in STYLES.items():
        async with ScriptedProvider(lambda _, style=style: answer(style)) as provider:
            seen[name] = await ask(provider)
    arguments = {name: hear(response.content).blocks[2].text for name, response in seen.items()}
    assert "\n  " in arguments["pretty"]
    assert "\\u00fc" in arguments["escaped"]
    assert "Grüße" in arguments["tidy"]
    assert len(sse(seen["each character"].content)) > 2 * len(sse(seen["tidy"].content))
    assert "ping" in hear(seen["noise"].content).events
    assert b": keep-alive\n\n" in seen["noise"].content
    assert b"  }\n\n" in seen["noise"].content
    assert b"\r\n\r\nevent: ping\r\n" in seen["crlf"].content
    assert seen["gzip"].headers["content-encoding"] == "gzip"
    assert "content-encoding" not in seen["tidy"].headers


async def raw(provider: ScriptedProvider, extra: str = "") -> bytes:
    """The bytes of a response as they came, by a socket that knows nothing of HTTP."""
    sent = to_json(body(), escape=True).encode()
    head = f"POST /v1/messages HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{extra}"
    reader, writer = await asyncio.open_connection("127.0.0.1", provider.port)
    writer.write(f"{head}content-length: {len(sent)}\r\n\r\n".encode() + sent)
    try:
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


def chunks(response: bytes) -> list[bytes]:
    """The HTTP chunks of a response; fails if the framing is wrong."""
    rest = response.partition(b"\r\n\r\n")[2]
    found: list[bytes] = []
    while True:
        size, _, rest = rest.partition(b"\r\n")
        if int(size, 16) == 0:
            assert rest == b"\r\n"
            return found
        found.append(rest[: int(size, 16)])
        assert rest[int(size, 16) :][:2] == b"\r\n"
        rest = rest[int(size, 16) + 2 :]


def torn(pieces: list[bytes]) -> int:
    """How many pieces are no text by themselves."""

    def whole(piece: bytes) -> bool:
        try:
            piece.decode()
        except UnicodeDecodeError:
            return False
        return True

    return sum(not whole(piece) for piece in pieces)


async def test_chunks_cut_through_characters_and_add_up_to_the_same_bytes() -> None:
    reply = Reply(BLOCKS, style=Style(split_bytes=3, seed=5), id="msg_1")
    tidy = Reply(BLOCKS, style=Style(seed=5), id="msg_1")
    async with ScriptedProvider(lambda _: reply) as cut, ScriptedProvider(lambda _: tidy) as whole:
        pieces, frames = chunks(await raw(cut)), chunks(await raw(whole))
    assert b"".join(pieces) == b"".join(frames)
    assert {len(piece) for piece in pieces} == {1, 2, 3}
    assert torn(pieces) > 3
    assert torn(frames) == 0
    assert all(frame.endswith(b"\n\n") for frame in frames), "tidy: one event per write"


async def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    def bytes_of(seed: int) -> Reply:
        style = Style(seed, split_text=4, split_input=4, split_bytes=9, pings=True, comments=True)
        return Reply(BLOCKS, style=style, id="msg_1")

    seeds = iter([1, 1, 2])
    async with ScriptedProvider(lambda _: bytes_of(next(seeds))) as provider:
        one, again, other = [chunks(await raw(provider)) for _ in range(3)]
    assert one == again
    assert one != other


async def test_gzip_only_goes_to_clients_that_accept_it() -> None:
    reply = answer(Style(gzip=True, split_bytes=11))
    async with ScriptedProvider(lambda _: reply) as provider:
        zipped = await raw(provider, "accept-encoding: gzip, br\r\n")
        plain = await raw(provider)
    assert b"content-encoding: gzip" in zipped.partition(b"\r\n\r\n")[0].lower()
    assert hear(zlib.decompress(b"".join(chunks(zipped)), wbits=31)).finished
    assert hear(b"".join(chunks(plain))).finished


@pytest.mark.parametrize("style", [Style(), Style(gzip=True, pretty=True, split_bytes=3)])
async def test_without_streaming_the_answer_is_one_json(style: Style) -> None:
    async with ScriptedProvider(lambda _: answer(style)) as provider:
        response = await ask(provider, body(stream=False))
    message = response.json()
    assert response.headers["content-type"] == "application/json"
    assert [block["type"] for block in message["content"]] == [*("thinking", "text", "tool_use", "tool_use")]
    assert message["content"][2]["input"] == INPUT
    assert (message["role"], message["stop_reason"], message["model"]) == (*("assistant", "tool_use", "m"),)


async def test_ids_are_unique_per_reply_unless_they_are_given() -> None:
    reply = Reply((ToolUse("A"), ToolUse("A"), ToolUse("A", id="same")))
    async with ScriptedProvider(lambda _: reply) as provider:
        first, second = [hear((await ask(provider)).content) for _ in range(2)]
    fresh = [block.id for heard in (first, second) for block in heard.blocks[:2]]
    assert len({*fresh, first.id, second.id}) == 6
    assert first.blocks[2].id == second.blocks[2].id == "same"


async def test_duplicate_and_empty_looking_ids_can_be_ordered() -> None:
    reply = Reply((ToolUse("A", id="x:0"), ToolUse("B", id="x:0")), id="msg_same")
    async with ScriptedProvider(lambda _: reply) as provider:
        heard = hear((await ask(provider)).content)
    assert ([block.id for block in heard.blocks], heard.id) == (["x:0", "x:0"], "msg_same")


async def test_raw_arguments_are_sent_as_they_are() -> None:
    odd = '{ "a" : 1e2,\n"a":12345678901234567890, "b": "\\ud83d\\u00e9" }'
    reply = Reply((ToolUse("A", raw=odd), ToolUse("B", raw='{"cut": "of')))
    async with ScriptedProvider(lambda _: reply) as provider:
        heard = hear((await ask(provider)).content)
    assert [block.text for block in heard.blocks] == [odd, '{"cut": "of']


async def test_usage_is_told_with_its_cache_fields() -> None:
    reply = Reply((Text("x"),), usage=Usage(5, 6, 7, 8))
    async with ScriptedProvider(lambda _: reply) as provider:
        streamed = hear((await ask(provider)).content).usage
        whole = (await ask(provider, body(stream=False))).json()["usage"]
    told = {
        "input_tokens": 5,
        "output_tokens": 6,
        "cache_creation_input_tokens": 7,
        "cache_read_input_tokens": 8,
    }
    assert told.items() <= streamed.items()
    assert told.items() <= whole.items()


@pytest.mark.parametrize("split", [0, 100_000])
async def test_megabytes_of_text_arrive_whole(split: int) -> None:
    long = "äöü🎉" * 600_000
    style = Style(split_bytes=split, gzip=bool(split))
    async with ScriptedProvider(lambda _: Reply((Text(long),), style=style)) as provider:
        heard = hear((await ask(provider)).content)
    assert heard.blocks[0].text == long


def client(provider: ScriptedProvider) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=provider.url)


async def test_one_connection_serves_many_requests_of_all_kinds() -> None:
    async with ScriptedProvider(lambda _: say("hi")) as provider, client(provider) as http:
        ports: set[object] = set()
        for stream in (True, False, True):
            async with http.stream("POST", "/v1/messages", json=body(stream=stream)) as response:
                await response.aread()
                network = response.extensions["network_stream"]
                ports.add(network.get_extra_info("client_addr"))
        assert (await http.head("/")).status_code == 200
        counted = await http.post("/v1/messages/count_tokens", json=body("x" * 400))
        assert counted.json()["input_tokens"] >= 100
    assert len(ports) == 1


async def test_the_query_of_the_path_does_not_matter() -> None:
    async with ScriptedProvider(lambda _: say("hi")) as provider, client(provider) as http:
        response = await http.post("/v1/messages?beta=true", json=body())
    assert hear(response.content).finished


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("POST", "/v1/nothing", 404, "not_found_error"),
        ("GET", "/", 404, "not_found_error"),
        ("GET", "/v1/messages", 405, "invalid_request_error"),
        ("POST", "/v1/messages", 400, "invalid_request_error"),
    ],
)
async def test_errors_have_the_shape_of_the_api(method: str, path: str, status: int, kind: str) -> None:
    async with ScriptedProvider(lambda _: say("hi")) as provider, client(provider) as http:
        response = await http.request(method, path, content=b"no json")
    assert response.status_code == status
    assert response.json()["type"] == "error"
    assert response.json()["error"]["type"] == kind
    assert response.json()["error"]["message"]


async def test_only_the_accepted_key_gets_an_answer_by_either_header() -> None:
    accepted = fingerprint("secret")
    async with ScriptedProvider(lambda _: say("hi"), accepts_key=accepted) as provider:
        assert (await ask(provider, headers={"x-api-key": "secret"})).status_code == 200
        assert (await ask(provider, headers={"authorization": "Bearer secret"})).status_code == 200
        refused = await ask(provider, headers={"x-api-key": "dummy"})
        assert (await ask(provider)).status_code == 401
    assert refused.json()["error"]["type"] == "authentication_error"


async def test_an_invalid_conversation_is_refused_unless_checking_is_off() -> None:
    lost = body([{"role": "user", "content": "a"}, {"role": "assistant", "content": [
        {"type": "tool_use", "id": "t1", "name": "A", "input": {}}]}])  # fmt: skip
    async with ScriptedProvider(lambda _: say("hi")) as strict:
        refused = await ask(strict, lost)
    async with ScriptedProvider(lambda _: say("hi"), check=False) as lax:
        assert (await ask(lax, lost)).status_code == 200
    assert refused.status_code == 400
    assert "t1" in refused.json()["error"]["message"]


async def test_garbage_on_the_socket_harms_nobody_else() -> None:
    async with ScriptedProvider(lambda _: say("hi")) as provider:
        reader, writer = await asyncio.open_connection("127.0.0.1", provider.port)
        writer.write(b"\x16\x03\x01 no http at all\r\n\r\n")
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        assert (await ask(provider)).status_code == 200


async def test_requests_can_be_looked_at_afterwards() -> None:
    async with ScriptedProvider(lambda _: say("hi")) as provider:
        await ask(provider, body("hello", model="claude-x"))
    assert [(seen.model, seen.body["max_tokens"]) for seen in provider.requests] == [("claude-x", 9)]
