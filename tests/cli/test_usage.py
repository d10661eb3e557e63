"""What people get who ask for what cannot be done: a sentence with the next step, and exit code 2."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, get_args

import apsw
import pytest

from harness_durable.cli.main import COMMANDS
from harness_durable.cli.sessions import STATES
from harness_durable.settings import Settings
from harness_durable.state import SessionStatus
from tests.cli.kit import SCRIPT, Cli, sentence

EVERY = [[name] for name in COMMANDS] + [["worlds", "list"], ["worlds", "check"]]


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_every_command_explains_itself(words: list[str], cli: Cli) -> None:
    done = cli(*words, "--help")
    assert done.returncode == 0
    assert b"Usage: harness-durable" in done.stdout
    assert not (cli.folder / "world.db").exists()


def test_every_state_can_be_asked_for() -> None:
    assert set(STATES) == set(get_args(SessionStatus))


def test_the_first_help_lists_every_command_and_the_exit_codes(cli: Cli) -> None:
    said = cli("--help").stdout.decode()
    assert all(f"\n  {name} " in said for name in COMMANDS)
    assert "3 needs a person" in " ".join(said.split())


@pytest.mark.parametrize("words", [[], ["run"], ["send"], ["sessions"], ["worker"], ["export"], ["install"]])
def test_help_imports_nothing_heavier_than_click(words: list[str]) -> None:
    command = [sys.executable, "-X", "importtime", SCRIPT, *words, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    heavy = {"anyio", "asyncio", "pydantic", "msgspec", "httpx", "rich", "apsw", "platformdirs", "mcp"}
    assert "click" in imported
    assert not imported & heavy


BAD: list[tuple[list[str], str]] = [
    ([], "Commands:"),
    (["rnu"], "Did you mean 'run'?"),
    (["run"], "Missing argument 'TEXT'"),
    (["run", "hi", "--modle", "x"], "--model"),
    (["run", ""], "the message is empty"),
    (["run", "-"], "the message is empty"),
    (["run", "hi", "-s", "a/b"], "cannot name a session"),
    (["run", "hi", "--adapter", "nope"], "known: claude-code"),
    (["run", "hi", "--sandbox", "nope"], "known: local"),
    (["run", "hi", "--workspace", "nowhere"], "does not exist"),
    (["run", "hi", "--world", "redis:x"], "known: file, sqlite"),
    (["run", "hi", "--world", "x"], "has no scheme; use one of file:…, sqlite:…"),
    (["run", "hi", "--world", "sqlite:"], "write sqlite:PATH"),
    (["run", "hi", "--tools", "nope.py"], "give the path of a Python file"),
    (["run", "hi", "--tools", "no.such.module"], "no module named 'no'"),
    (["send", "nobody", "hi"], "`harness-durable sessions` lists"),
    (["steer", "nobody", "hi"], "`harness-durable sessions` lists"),
    (["stop", "nobody"], "`harness-durable sessions` lists"),
    (["trace", "nobody"], "`harness-durable sessions` lists"),
    (["recover", "nobody"], "`harness-durable sessions` lists"),
    (["recover", "nobody", "--dry-run"], "`harness-durable sessions` lists"),
    (["export", "nobody"], "`harness-durable sessions` lists"),
    (["answer", "nobody", "p", "--allow"], "`harness-durable sessions` lists"),
    (["answer", "nobody", "p"], "say --allow or --deny"),
    (["sessions", "--state", "asleep"], "'needs_input'"),
    (["trace", "x", "--since", "-1"], "-1"),
    (["install", "nope"], "known: claude-code"),
    (["install", "claude-code", "--version", "0.0.1"], "run `harness-durable install claude-code`"),
    (["worlds", "check", "nope"], "has no scheme"),
    (["demo", "--crash-at", "nope"], "tool.effect_done"),
    (["demo", "--adapter", "nope"], "known: claude-code"),
]


@pytest.mark.parametrize(("words", "said"), BAD, ids=lambda value: " ".join(value) if value != [] else "-")
def test_what_cannot_be_done_is_refused_in_a_sentence(words: list[str], said: str, cli: Cli) -> None:
    cli.env["HARNESS_DURABLE_UPSTREAM_KEY"] = "sk-test"
    cli.log("somebody")
    done = cli(*words)
    assert said in sentence(done)
    assert done.returncode == 2
    assert not done.stdout
    assert not list(cli.run_dir.glob("life-*"))


TOOLS = [
    ("def x(:", "SyntaxError"),
    ("x = 1 / 0", "tools.py:1: ZeroDivisionError"),
    ("raise SystemExit(3)", "tools.py:1: SystemExit: 3"),
    ("import sys; x = 1", "has no @tool function"),
    ("import no_such_thing", "no module named 'no_such_thing'"),
    (
        "from harness_durable import tool\n@tool\ndef f() -> str:\n    '''x'''\n    return ''",
        'replay="never"',
    ),
]


@pytest.mark.parametrize(("content", "said"), TOOLS)
def test_a_bad_file_of_tools_is_explained_with_the_place_in_it(content: str, said: str, cli: Cli) -> None:
    (cli.folder / "tools.py").write_text(content)
    done = cli("run", "hi", "--tools", "tools.py")
    assert said in sentence(done)
    assert done.returncode == 2


def test_without_a_key_nothing_starts(cli: Cli) -> None:
    for words in (["run", "hi", "-s", "a"], ["worker"]):
        done = cli(*words)
        assert "set ANTHROPIC_API_KEY" in sentence(done)
        assert done.returncode == 2
    assert cli.json("sessions") == []


PROVIDERS = [
    ({"HARNESS_DURABLE_UPSTREAM_URL": "localhost:80"}, "must look like https://"),
    ({"HARNESS_DURABLE_UPSTREAM_KEY": "a b"}, "key"),
    ({"HARNESS_DURABLE_UPSTREAM_HEADERS": "a b=c"}, "header"),
    ({"HARNESS_DURABLE_UPSTREAM_AUTH": "maybe"}, "'key' or 'login'"),
]


@pytest.mark.parametrize(("env", "said"), PROVIDERS)
def test_a_provider_that_cannot_be_asked_is_refused_before_anything_starts(
    env: dict[str, str], said: str, cli: Cli
) -> None:
    done = cli("run", "hi", env=env)
    assert said in sentence(done)
    assert done.returncode == 2


FILES = [
    (b"x =", "cannot be read"),
    (b"nope = 1", "unknown settings: nope"),
    (b"app = 3", "app (from"),
    (b"\xff\xfe", "cannot be read"),
]


@pytest.mark.parametrize(("content", "said"), FILES)
def test_a_bad_file_of_settings_is_named(content: bytes, said: str, cli: Cli) -> None:
    (cli.folder / "harness-durable.toml").write_bytes(content)
    done = cli("sessions")
    assert said in sentence(done)
    assert "harness-durable.toml" in sentence(done)
    assert done.returncode == 2


def test_a_bad_number_warns_once_and_is_clamped(cli: Cli) -> None:
    done = cli("doctor", "--quick", "--json", env={"HARNESS_DURABLE_CONCURRENCY": "1000"})
    assert done.stderr.decode().startswith("warning: concurrency = '1000'")
    assert len(done.stderr.splitlines()) == 1
    assert b'"setting": "concurrency", "value": "256"' in done.stdout


BINARIES = [
    ("/no/such/file", "correct or unset it"),
    ("plain", "chmod +x"),
    ("other", "does not report a version of claude-code"),
    ("other", "unset it and run `harness-durable install claude-code`"),
    ("newer", "HARNESS_DURABLE_CLAUDE_CODE_ANY_VERSION"),
]


@pytest.mark.parametrize(("name", "said"), BINARIES)
def test_a_binary_that_will_not_do_is_refused(name: str, said: str, cli: Cli) -> None:
    cli.env["HARNESS_DURABLE_UPSTREAM_KEY"] = "sk-test"
    for file, version in (("plain", ""), ("other", "ls 1.0"), ("newer", "99.0.0 (Claude Code)")):
        path = cli.folder / file
        path.write_text(f"#!/bin/sh\necho '{version}'\n")
        path.chmod(0o644 if file == "plain" else 0o755)
    done = cli("run", "hi", env={"HARNESS_DURABLE_CLAUDE_CODE_BINARY": str(cli.folder / name)})
    assert said in sentence(done)
    assert done.returncode == 2
    assert cli.json("sessions") == []


def test_a_missing_binary_says_how_to_get_it_also_when_the_folder_is_set_in_a_file(cli: Cli) -> None:
    cli.env.pop("HARNESS_DURABLE_HARNESS_DIR", None)
    (cli.folder / "harness-durable.toml").write_text('harness_dir = "none"\nupstream_key = "sk-test"\n')
    done = cli("run", "hi")
    assert "run `harness-durable install claude-code`" in sentence(done)
    assert "none" in sentence(done)
    assert done.returncode == 2


@pytest.mark.parametrize("world", ["sqlite:/proc/nowhere/x.db", "file:/proc/nowhere"])
def test_a_world_that_cannot_be_written_is_named(world: str, cli: Cli) -> None:
    done = cli("run", "hi", "--world", world, env={"HARNESS_DURABLE_UPSTREAM_KEY": "sk-test"})
    [said] = sentence(done).splitlines()
    assert said.startswith(f"error: cannot use {world} as a World: No such file or directory; ")
    assert "HARNESS_DURABLE_WORLD" in said
    assert "disk" not in said
    assert done.returncode == 1


@pytest.mark.parametrize("words", [["run", "hi", "-s", "new"], ["recover", "s"], ["worker"]])
def test_a_run_directory_that_cannot_be_made_is_named_before_anything_is_stored(
    words: list[str], cli: Cli
) -> None:
    cli.log("s")
    before = cli.json("sessions"), cli.json("trace", "s")
    env = {"HARNESS_DURABLE_RUN_DIR": "/proc/nowhere", "HARNESS_DURABLE_UPSTREAM_KEY": "sk-test"}
    done = cli(*words, env=env)
    [said] = sentence(done).splitlines()
    assert said.startswith("error: the run directory /proc/nowhere cannot be used: No such file or directory")
    assert "HARNESS_DURABLE_RUN_DIR" in said
    assert done.returncode == 2
    assert (cli.json("sessions"), cli.json("trace", "s")) == before


def test_doctor_shows_every_setting_and_hides_the_secrets(cli: Cli) -> None:
    secrets = {
        "HARNESS_DURABLE_UPSTREAM_KEY": "sk-topsecret",
        "HARNESS_DURABLE_UPSTREAM_HEADERS": "x-key=topsecret",
    }
    done = cli("doctor", "--quick", "--json", env=secrets)
    assert done.returncode == 0
    for name in Settings.model_fields:
        assert f'"setting": "{name}"'.encode() in done.stdout
    assert b"topsecret" not in done.stdout + done.stderr


def test_doctor_says_which_sqlite_and_how_firmly_lives_are_held(cli: Cli) -> None:
    checks = {line["check"]: line for line in doctor(cli) if "check" in line}
    assert f"sqlite: {apsw.sqlite_lib_version()};" in checks["world sqlite"]["detail"]
    held = checks["sandbox local"]
    assert held["detail"].partition(":")[0] in ("pidns", "userns", "guard")
    assert held["state"] == ("warn" if held["detail"].startswith("guard") else "ok")
    assert list(cli.run_dir.glob("[!.]*")) == []


def test_doctor_shows_the_variables_of_tools_that_are_set_and_no_others(cli: Cli) -> None:
    given = {
        "HARNESS_DURABLE_ALLOW_NETWORK_FS": "1",
        "HARNESS_DURABLE_CLAUDE_CODE_BINARY": "/no/such/file",
        "MAX_THINKING_TOKENS": "5",
    }
    before = {line["setting"] for line in doctor(cli) if "setting" in line}
    shown = {line["setting"]: line for line in doctor(cli, given) if "setting" in line}
    assert set(shown) - before == set(given)
    assert {name: shown[name]["value"] for name in given} == given
    assert {shown[name]["from"] for name in given} == {"environment"}


def doctor(cli: Cli, env: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    lines = cli("doctor", "--quick", "--json", env=env).stdout.splitlines()
    return [json.loads(line) for line in lines]


def test_doctor_fails_when_something_is_broken(cli: Cli) -> None:
    done = cli("doctor", "--quick", "--world", "sqlite:/proc/nowhere/x.db")
    assert done.returncode == 1
    assert b"fail" in done.stdout


def test_an_encoding_that_lacks_our_signs_is_no_obstacle(cli: Cli) -> None:
    cli.log("s", message="über")
    done = cli("trace", "s", env={"PYTHONIOENCODING": "latin-1"})
    assert done.returncode == 0
    assert b"\\u276f message m-1: \xfcber" in done.stdout
