"""The harness's own login: opt-in, and then the token of the life is in the path and not in the key."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from harness_durable.errors import BadSetting
from harness_durable.events import AgentSpec
from harness_durable_adapters.claude_code.launch import Start, launch

AGENT = AgentSpec("claude-code", "2.1.332", "claude-sonnet-4-5", "local", ".")


@pytest.fixture(autouse=True)
def nobody_is_logged_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    for name in ("CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)


async def nothing() -> AsyncGenerator[bytes]:
    yield b""


def start(*, login: bool) -> Start:
    return Start("/bin/claude", "n-1", AGENT, "/home/x", "life-token", custom=False, login=login)


def test_with_a_key_no_login_enters_the_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".credentials.json").write_text("a login")
    monkeypatch.setenv("CLAUDE_CODE_OAUTH_TOKEN", "oat-secret")
    plan = launch(start(login=False), "fresh", nothing)
    assert plan.env["ANTHROPIC_API_KEY"] == "life-token"
    assert b"a login" not in plan.files.values()
    assert "oat-secret" not in plan.env.values()


def test_a_stored_login_is_copied_and_the_token_travels_in_the_path(tmp_path: Path) -> None:
    (tmp_path / ".credentials.json").write_text("a login")
    plan = launch(start(login=True), "fresh", nothing)
    assert "ANTHROPIC_API_KEY" not in plan.env
    assert plan.env["ANTHROPIC_BASE_URL"].endswith("/life-token")
    assert b"a login" in plan.files.values()


def test_a_login_in_the_environment_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CODE_OAUTH_TOKEN", "oat-secret")
    plan = launch(start(login=True), "fresh", nothing)
    assert plan.env["CLAUDE_CODE_OAUTH_TOKEN"] == "oat-secret"


def test_without_any_login_the_sentence_says_what_to_do() -> None:
    with pytest.raises(BadSetting, match="log in"):
        launch(start(login=True), "fresh", nothing)
