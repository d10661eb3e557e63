"""Traces are what a receiver of OpenTelemetry takes: a real one (rotel) is asked, and says what it got."""

from __future__ import annotations

import http.server
import json
import re
import socket
import subprocess
import threading
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harness_durable import events as ev
from harness_durable.errors import BadInput, HarnessDurableError
from harness_durable.exports import Material, Redaction, gather, otlp
from harness_durable.exports.sending import HEADERS, place, send
from harness_durable.payload import Payload, pack_text
from tests.exports.kit import HISTORIES, history, material
from tests.unit.log_kit import BEGIN, TEXT, model, tool


class Receiver(NamedTuple):
    url: str
    said: Path

    def spans(self, name: str) -> list[str]:
        """What it says of the spans with this name."""
        text = self.said.read_text()
        return [part for part in re.split(r"^Span #\d+$", text, flags=re.MULTILINE) if f": {name}\n" in part]


def free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Generator[Receiver]:
    """A collector that prints what it receives."""
    spec = find_spec("rotel")
    assert spec is not None and spec.origin is not None
    folder, port = tmp_path_factory.mktemp("rotel"), free()
    command: list[str | Path] = [
        Path(spec.origin).with_name("rotel-agent"), "start", "--exporter", "blackhole", "--disable-batching",
        "--otlp-http-endpoint", f"127.0.0.1:{port}", "--otlp-grpc-endpoint", f"127.0.0.1:{free()}",
        "--debug-log", "traces", "--debug-log-verbosity", "detailed",
    ]  # fmt: skip
    said = folder / "said"
    with said.open("wb") as out, subprocess.Popen(command, cwd=folder, stdout=out, stderr=out) as process:
        try:
            while process.poll() is None:
                try:
                    socket.create_connection(("127.0.0.1", port), 0.1).close()
                    break
                except OSError:
                    continue
            yield Receiver(f"http://127.0.0.1:{port}", said)
        finally:
            process.terminate()


async def received(receiver: Receiver, found: Material) -> int:
    """Send, and wait until all of it has been printed."""
    wanted = sum(len(spans(request)) for request in otlp(found))
    before = receiver.said.read_text().count("Span #")
    sent = await send(otlp(found), receiver.url)
    while receiver.said.read_text().count("    ID     ") < before + wanted:
        pass  # the time-out of all tests is the deadline
    return sent


def spans(request: bytes) -> list[dict[str, Any]]:
    [resource] = json.loads(request)["resourceSpans"]
    [scope] = resource["scopeSpans"]
    return scope["spans"]


def attribute(span: dict[str, Any], name: str) -> Any:
    found = [one["value"] for one in span["attributes"] if one["key"] == name]
    return next(iter(found[0].values())) if found else None


async def test_a_receiver_takes_a_history(receiver: Receiver) -> None:
    """One of them: it prints all that it ever received."""
    world, session = await history(next(path for path in HISTORIES if path.stem == "format-1-claude-code"))
    assert await received(receiver, await gather(world, session, Redaction())) == 1
    [lost] = receiver.spans("life 1")
    assert "STATUS_CODE_ERROR" in lost
    assert "error.type: Str(process_lost)" in lost
    [turn] = receiver.spans("turn task")
    assert "gen_ai.operation.name: Str(invoke_agent)" in turn
    assert f"gen_ai.conversation.id: Str({session})" in turn
    calls = receiver.spans("chat claude-sonnet-4-5")
    assert len(calls) == 7
    assert all("SPAN_KIND_CLIENT" in call for call in calls)
    assert "gen_ai.usage.input_tokens: Int(17376)" in calls[0]
    [deploy] = receiver.spans("execute_tool mcp__durable__deploy")
    assert "error.type: Str(unknown)" in deploy
    [second] = receiver.spans("life 2")
    number = re.search(r"^ +ID +: (\w{16})$", second, re.MULTILINE)
    assert number is not None
    assert f"-> ID: {number[1]}" in lost


async def test_a_receiver_takes_any_characters_and_large_numbers(receiver: Receiver) -> None:
    hostile = '\x00\x1b[31m\u202e </script> 😀 \\ "'
    asked = ev.MessageAccepted("m-1", pack_text(hostile).payload)
    usage = ev.Usage(2**53 + 1, 1)
    done = ev.ModelCompleted("m1", 200, "json", TEXT, usage=usage)
    log = [BEGIN[0], asked, *BEGIN[2:], *model("m1", done=False), done]
    await received(receiver, material(*log))
    assert f"Int({2**53 + 1})" in receiver.said.read_text()


def test_ids_follow_from_the_session_and_the_place_in_the_log() -> None:
    log = [*BEGIN, *model(), *tool("c1", released=True)]
    first = {span["spanId"]: span["name"] for request in otlp(material(*log)) for span in spans(request)}
    longer = material(*log, ev.ToolCompleted("c1", TEXT, "hook"))
    second = [span for request in otlp(longer) for span in spans(request)]
    assert {span["spanId"]: span["name"] for span in second} == first
    assert len(first) == len(second) == 5
    assert all(re.fullmatch(r"[0-9a-f]{16}", span["spanId"]) for span in second)
    assert len({span["traceId"] for span in second}) == 1
    assert re.fullmatch(r"[0-9a-f]{32}", second[0]["traceId"])


def test_parents_are_in_the_trace_and_a_lost_run_and_its_successor_link_to_each_other() -> None:
    log = [*BEGIN, *model(), *tool("c1", released=True), ev.LifeEnded("L1", "gone")]
    log += [ev.LifeStarted("L2", "m-1", "local", "run", "here", "1"), ev.ToolReleased("c1", "L2")]
    found = [span for request in otlp(material(*log)) for span in spans(request)]
    known = {span["spanId"] for span in found}
    assert [span["name"] for span in found if "parentSpanId" not in span] == ["session s"]
    assert all(span["parentSpanId"] in known for span in found[1:])
    first, second = (span for span in found if span["name"] == "execute_tool Bash")
    assert (first["links"][0]["spanId"], second["links"][0]["spanId"]) == (second["spanId"], first["spanId"])
    assert first["status"] == {"code": 2, "message": "process_lost"}
    assert attribute(first, "error.type") == "process_lost"
    assert attribute(second, "harness_durable.open") is True


def test_what_a_model_said_and_a_tool_gave_is_there_with_content_only() -> None:
    log = [*BEGIN, *model(), *tool("c1", done=True), ev.TurnCompleted("m-1", pack_text("all done").payload)]
    [request] = otlp(material(*log))
    keys = {one["key"] for span in spans(request) for one in span["attributes"]}
    content = {"gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.tool.call.arguments"}
    content |= {"gen_ai.tool.call.result", "harness_durable.request.parts"}
    assert content <= keys
    [turn] = [span for span in spans(request) if span["name"] == "turn m-1"]
    [message] = json.loads(attribute(turn, "gen_ai.output.messages"))
    assert message["parts"] == [{"type": "text", "content": "all done"}]


def test_a_long_session_is_several_requests_of_bounded_size() -> None:
    calls = [event for number in range(450) for event in model(f"m{number}")]
    requests = list(otlp(material(*BEGIN, *calls)))
    assert [len(spans(request)) for request in requests] == [200, 200, 53]
    body = Payload(1_500_000, text="x" * 1_500_000)
    large = [ev.ModelRequested(f"m{n}", "k", "L1", "anthropic", "x", "/", (body,)) for n in range(3)]
    assert len(list(otlp(material(*BEGIN, *large)))) == 3


# ------------------------------------------------------------------------------------------ sending


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("http://h:4318", "http://h:4318/v1/traces"),
        ("http://h:4318/", "http://h:4318/v1/traces"),
        ("https://h/otel/v1/traces", "https://h/otel/v1/traces"),
        ("https://h/otel?x=1", "https://h/otel/v1/traces?x=1"),
    ],
)
def test_an_endpoint_is_a_base_or_the_whole_path(given: str, meant: str) -> None:
    assert place(given) == meant


@pytest.mark.parametrize("given", ["", "localhost:4318", "ftp://h", "http://"])
def test_what_is_no_endpoint_is_refused(given: str) -> None:
    with pytest.raises(BadInput, match="--otlp-endpoint"):
        place(given)


class Stub(http.server.BaseHTTPRequestHandler):
    status, answer = 200, b"{}"
    seen: list[dict[str, str]]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        type(self).seen.append({name.lower(): value for name, value in self.headers.items()})
        self.send_response(self.status)
        self.send_header("content-length", str(len(self.answer)))
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # as the base class names it
        pass


@pytest.fixture
def stub() -> Generator[str]:
    Stub.status, Stub.answer, Stub.seen = 200, b"{}", []
    with http.server.HTTPServer(("127.0.0.1", 0), Stub) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


async def test_a_key_for_the_receiver_comes_from_the_variable_that_other_exporters_use(
    stub: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HEADERS, "x-team=a%20b, authorization=Basic Zm9v")
    assert await send([b"{}", b"{}"], stub) == 2
    assert [one["x-team"] for one in Stub.seen] == ["a b", "a b"]
    assert Stub.seen[0]["authorization"] == "Basic Zm9v"
    assert Stub.seen[0]["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("status", "answer", "why"),
    [
        (503, b"busy", "status 503: busy"),
        (302, b"", "status 302"),
        (
            200,
            b'{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}}',
            "3 spans rejected: too old",
        ),
    ],
)
async def test_what_a_receiver_does_not_take_is_told(stub: str, status: int, answer: bytes, why: str) -> None:
    Stub.status, Stub.answer = status, answer
    with pytest.raises(HarnessDurableError, match=why):
        await send([b"{}"], stub.replace("//", "//user:secret@"))


@pytest.mark.parametrize("answer", [b"", b'{"partialSuccess":null}', b'{"partialSuccess":{}}', b"ok"])
async def test_what_it_takes_is_taken_whatever_it_answers(stub: str, answer: bytes) -> None:
    Stub.answer = answer
    assert await send([b"{}"], stub) == 1


async def test_nobody_there_is_told_without_the_password() -> None:
    with pytest.raises(HarnessDurableError, match="send them again") as told:
        await send([b"{}"], f"http://user:hunter2@127.0.0.1:{free()}")
    assert "hunter2" not in str(told.value)
