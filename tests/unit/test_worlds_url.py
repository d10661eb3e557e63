"""World URLs: which are refused, and that no form of a password is ever shown (C163)."""

from __future__ import annotations

import string
from pathlib import Path

import pytest

from harness_durable.errors import BadSetting, UnknownName
from harness_durable.worlds import open_world, redact

PRINTABLE = string.punctuation + string.digits + string.ascii_letters + " "


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:sesame@h/db", "postgresql://u:***@h/db"),
        ("postgresql://u:sesame@h:5432/db?sslmode=require", "postgresql://u:***@h:5432/db?sslmode=require"),
        ("postgresql://u:%73esame@h/db", "postgresql://u:***@h/db"),
        ("postgresql://:sesame@h/db", "postgresql://:***@h/db"),
        ("postgresql://u:@h/db", "postgresql://u:***@h/db"),
        ("postgresql://h/db?password=sesame", "postgresql://h/db?password=***"),
        ("postgresql://u@h/db?password=sesame&user=v", "postgresql://u@h/db?password=***&user=v"),
        ("postgresql://u@h/db?sslpassword=sesame", "postgresql://u@h/db?sslpassword=***"),
        ("postgresql://u@h/db?a=b&pass%77ord=sesame", "postgresql://u@h/db?a=b&pass%77ord=***"),
        ("postgresql://u@h/db?PASSWORD=sesame", "postgresql://u@h/db?PASSWORD=***"),
        ("postgresql://u:sesame@h/db?password=sesame", "postgresql://u:***@h/db?password=***"),
        ("postgresql:/u:sesame@h/db", "postgresql:/u:***@h/db"),
        ("postgresql:u:sesame@h/db", "postgresql:u:***@h/db"),
        (":sesame@h/db", ":***@h/db"),
    ],
)
def test_a_password_is_not_shown_and_the_rest_is(url: str, shown: str) -> None:
    assert redact(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:agents.db",
        "sqlite:/data/me@work/agents.db",
        "file:/data/logs",
        "postgresql://h/db",
        "postgresql://u@h/db",
        "postgresql://h:5432/db",
        "postgresql:///db?host=/run/postgres",
        "",
        "nonsense",
    ],
)
def test_what_holds_no_password_is_shown_as_it_is(url: str) -> None:
    assert redact(url) == url


@pytest.mark.parametrize("character", PRINTABLE)
@pytest.mark.parametrize(
    "form", ["postgresql://u:{}@h/db", "postgresql://u:{}@h:5432/db?a=b", "postgresql:/u:{}@h"]
)
def test_a_password_pasted_as_it_is_is_not_shown_whatever_is_in_it(character: str, form: str) -> None:
    for password in (
        f"ses{character}ame",
        f"{character}sesame",
        f"sesame{character}",
        character * 3 + "sesame",
    ):
        shown = redact(form.format(password))
        assert "ame" not in shown and "ses" not in shown


@pytest.mark.parametrize(
    "password", ["p@ss:w@rd", "a://b", "password=x", "x?password=y&z", "%40%3a", "ä€😀", "a\nb"]
)
def test_passwords_that_look_like_parts_of_a_url_are_not_shown(password: str) -> None:
    shown = redact(f"postgresql://u:{password}@h/db")
    assert password not in shown and "w@rd" not in shown and "&z" not in shown


# ---------------------------------------------------------------------------------------------- open


@pytest.mark.parametrize("url", ["", "agents.db", ":sesame@h/db", "/data/agents.db"])
async def test_a_url_without_a_scheme_says_what_would_work(url: str) -> None:
    with pytest.raises(BadSetting) as error:
        await open_world(url)
    assert all(word in str(error.value) for word in ("scheme", "file:", "sqlite:"))
    assert "sesame" not in str(error.value)


async def test_an_unknown_scheme_lists_the_known_ones_and_shows_no_password() -> None:
    with pytest.raises(UnknownName) as error:
        await open_world("oracle://u:sesame@h/db")
    assert "'oracle'" in str(error.value) and "sqlite" in str(error.value)
    assert "sesame" not in str(error.value)


@pytest.mark.parametrize("form", ["sqlite:{}/agents.db", "file:{}/logs"])
async def test_a_url_opens_its_store_for_its_app(tmp_path: Path, form: str) -> None:
    world = await open_world(form.format(tmp_path), "blue")
    try:
        assert (world.app, await world.sessions()) == ("blue", [])
    finally:
        await world.aclose()
