"""``export --to``: the command as people call it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from harness_durable import events as ev
from harness_durable.cli.main import group
from harness_durable.errors import HarnessDurableError
from harness_durable.payload import pack_text
from tests.cli.kit import SCRIPT, Cli
from tests.exports.test_otlp import Stub, stub

__all__ = ("stub",)

KEY = "sk-ant-api03-" + "Ab1_" * 12
FORMATS = ("jsonl", "otlp", "perfetto", "markdown", "html")


class Done(NamedTuple):
    code: int
    out: bytes
    said: str


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """A session in which a secret was said."""
    found = Cli(tmp_path_factory.mktemp("exports"), "sqlite:world.db")
    life = ev.LifeStarted("L1", "m-1", "local", "run", "here", "1")
    done = ev.TurnCompleted("m-1", pack_text(f"hunter2 and {KEY}").payload)
    found.log("s", (ev.TurnStarted("m-1"), life, ev.LifeEnded("L1", "killed"), done), message="say hunter2")
    return found


def call(cli: Cli, *words: str, stdin: bytes = b"") -> Done:
    """The command in this process, which is quicker; ``main`` would print an error of ours and end with its
    code."""
    done = CliRunner().invoke(group, [*words, "--world", cli.absolute], input=stdin)
    if isinstance(done.exception, HarnessDurableError):
        return Done(done.exception.exit_code, done.stdout_bytes, str(done.exception))
    assert isinstance(done.exception, SystemExit | None), done.exception
    return Done(done.exit_code, done.stdout_bytes, done.stderr)


def export(cli: Cli, *words: str) -> Done:
    return call(cli, "export", "s", *words)


@pytest.mark.parametrize("form", FORMATS)
def test_each_format_is_written_and_shows_no_credential(cli: Cli, form: str, tmp_path: Path) -> None:
    done = export(cli, "--to", form)
    assert (done.code, done.said) == (0, "")
    assert b"hunter2" in done.out
    assert b"Ab1_Ab1_" not in done.out
    assert export(cli, "--to", form, "-o", str(tmp_path / "out")).out == b""
    assert (tmp_path / "out").read_bytes() == done.out


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("words", [["--no-content"], ["--redact", "hunter[0-9]", "--redact", "nothing"]])
def test_what_was_said_is_left_out_or_redacted_in_each(cli: Cli, form: str, words: list[str]) -> None:
    done = export(cli, "--to", form, *words)
    assert done.code == 0, done.said
    assert b"hunter2" not in done.out
    assert b"L1" in done.out or b"life 1" in done.out


def test_the_default_is_what_import_reads_and_lacks_nothing(cli: Cli) -> None:
    whole = export(cli).out
    assert whole == export(cli, "--to", "archive").out
    assert KEY.encode() in whole
    assert call(cli, "import", "-", "--as", "twin", stdin=whole).out == b"twin\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--no-content"], "--to jsonl"),
        (["--redact", "x"], "--to jsonl"),
        (["--salvage", "--to", "html"], "leave out --to html"),
        (["--to", "jsonl", "--otlp-endpoint", "http://h"], "--to unless it is otlp"),
        (["--otlp-endpoint", "http://h", "-o", "x"], "leave out -o"),
        (["--otlp-endpoint", "h:4318"], "for instance http://"),
        (["--to", "jsonl", "--redact", "("], "no regular expression"),
        (["--to", "xml"], "perfetto"),
    ],
)
def test_what_does_not_go_together_is_said(cli: Cli, words: list[str], said: str) -> None:
    done = export(cli, *words)
    assert (done.code, done.out) == (2, b"")
    assert said in done.said


@pytest.mark.parametrize("form", ["archive", *FORMATS])
def test_a_session_that_is_not_there_is_told_and_a_file_stays_as_it_was(
    cli: Cli, form: str, tmp_path: Path
) -> None:
    (tmp_path / "out").write_text("before")
    done = call(cli, "export", "nobody", "--to", form, "-o", str(tmp_path / "out"))
    assert done.code == 2
    assert "`harness-durable sessions` lists" in done.said
    assert (tmp_path / "out").read_text() == "before"


def test_traces_are_posted(cli: Cli, stub: str) -> None:
    done = export(cli, "--otlp-endpoint", stub)
    assert (done.code, done.out) == (0, b"")
    assert "in 1 request" in done.said
    assert len(Stub.seen) == 1
    Stub.status = 500
    failed = export(cli, "--to", "otlp", "--otlp-endpoint", stub)
    assert failed.code == 1
    assert "status 500" in failed.said


def test_jsonl_is_as_trace_prints_it_but_with_its_bodies(cli: Cli) -> None:
    exported = [json.loads(line) for line in export(cli, "--to", "jsonl").out.splitlines()]
    traced = [json.loads(line) for line in call(cli, "trace", "s", "--json").out.splitlines()]
    assert [one.pop("session") for one in exported] == ["s"] * 6
    assert exported[:-1] == traced[:-1]  # the last one has a credential


def test_a_closed_pipe_is_no_error(cli: Cli) -> None:
    script = f"set -o pipefail; '{os.fspath(SCRIPT)}' export s --to jsonl | head -c 1"
    done = subprocess.run(["bash", "-c", script], cwd=cli.folder, env=cli.env, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_trace_ends_with_the_lives_in_a_fence_when_piped(cli: Cli) -> None:
    story, _, lives = call(cli, "trace", "s").out.decode().partition("\n## Lives\n\n```text\n")
    assert all(line.startswith("- ") for line in story.splitlines())
    assert "life 1 " in lives and "╳ killed" in lives
    assert lives.endswith("\n```\n")
