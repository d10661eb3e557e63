"""Where a setting comes from, what is done with a bad one, and that no secret is ever shown."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from harness_durable.errors import BadSetting
from harness_durable.origins import FILE, where
from harness_durable.settings import Resolved, Settings, resolve

SECRET = "sk-canary-5f0c"


def resolved(
    folder: Path,
    *,
    file: str | None = None,
    env: Mapping[str, str] | None = None,
    **flags: object,
) -> Resolved:
    if file is not None:
        (folder / FILE).write_text(file)
    return resolve(flags, env or {}, folder)


def test_without_any_source_everything_is_the_default(tmp_path: Path) -> None:
    found = resolved(tmp_path)
    assert found.settings == Settings.model_validate({})
    assert found.origins == dict.fromkeys(Settings.model_fields, "default")


def test_every_setting_says_what_it_is_for() -> None:
    assert all(field.description for field in Settings.model_fields.values())


def test_a_flag_comes_before_a_variable_before_the_file_before_the_default(tmp_path: Path) -> None:
    file = 'app = "file"\nmodel = "file"\nadapter = "file"\n'
    env = {"HARNESS_DURABLE_APP": "env", "HARNESS_DURABLE_MODEL": "env"}
    found = resolved(tmp_path, file=file, env=env, app="flag")
    settings, origins = found.settings, found.origins
    assert (settings.app, settings.model, settings.adapter, settings.sandbox) == (
        "flag",
        "env",
        "file",
        "local",
    )
    assert [origins[name] for name in ("app", "model", "adapter", "sandbox")] == [
        "flag",
        "HARNESS_DURABLE_MODEL",
        str(tmp_path / FILE),
        "default",
    ]


def test_a_flag_that_was_not_given_and_an_empty_variable_count_for_nothing(tmp_path: Path) -> None:
    found = resolved(tmp_path, env={"HARNESS_DURABLE_APP": ""}, app=None, model=None)
    assert (found.settings.app, found.origins["app"]) == ("default", "default")


def test_variables_that_people_have_set_already_are_used_until_there_is_one_of_ours(tmp_path: Path) -> None:
    env = {"ANTHROPIC_API_KEY": "sk-theirs", "ANTHROPIC_BASE_URL": "http://theirs.example"}
    theirs = resolved(tmp_path, env=env)
    assert theirs.origins["upstream_key"] == "ANTHROPIC_API_KEY"
    assert theirs.settings.upstream_url == "http://theirs.example"
    ours = resolved(tmp_path, env={**env, "HARNESS_DURABLE_UPSTREAM_KEY": "sk-ours"})
    assert ours.origins["upstream_key"] == "HARNESS_DURABLE_UPSTREAM_KEY"
    key = ours.settings.upstream_key
    assert key is not None and key.get_secret_value() == "sk-ours"


def test_the_keys_of_two_providers_are_not_mixed_up_unless_one_is_named_for_all(tmp_path: Path) -> None:
    env = {"ANTHROPIC_API_KEY": "sk-a", "ANTHROPIC_BASE_URL": "http://a.example"}
    alone = resolved(tmp_path, env=env).settings
    assert alone.openai_key is None, "one provider's key is never sent to another"
    assert alone.openai_url == "https://api.openai.com/v1"
    both = resolved(tmp_path, env={**env, "OPENAI_API_KEY": "sk-o", "OPENAI_BASE_URL": "http://o.example"})
    assert both.origins["openai_key"] == "OPENAI_API_KEY"
    assert (both.settings.upstream_url, both.settings.openai_url) == ("http://a.example", "http://o.example")
    named = {
        **env,
        "OPENAI_BASE_URL": "http://o.example",
        "HARNESS_DURABLE_UPSTREAM_URL": "http://all.example",
    }
    ours = resolved(tmp_path, env=named, upstream_key="sk-all")
    assert ours.settings.upstream_url == ours.settings.openai_url == "http://all.example"
    assert ours.settings.openai_key is not None
    assert ours.settings.openai_key.get_secret_value() == "sk-all"
    filed = resolved(tmp_path, file='upstream_url = "http://f.example"\nopenai_url = "http://g.example"')
    assert (filed.settings.upstream_url, filed.settings.openai_url) == (
        "http://f.example",
        "http://g.example",
    )


def test_a_variable_of_theirs_comes_before_the_file_too(tmp_path: Path) -> None:
    found = resolved(
        tmp_path,
        file='upstream_url = "http://file.example"',
        env={"ANTHROPIC_BASE_URL": "http://env.example"},
    )
    assert found.settings.upstream_url == "http://env.example"


@pytest.mark.parametrize("text", ["X-Team", "=blue", "X-Team=blue;Authorization"])
def test_headers_that_are_no_pairs_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadSetting, match="NAME=VALUE"):
        resolved(tmp_path, env={"HARNESS_DURABLE_UPSTREAM_HEADERS": text})


def test_headers_are_read_from_one_variable_and_from_a_table(tmp_path: Path) -> None:
    env = {"HARNESS_DURABLE_UPSTREAM_HEADERS": " X-Team = blue ;Authorization=Bearer a=b; "}
    assert resolved(tmp_path, env=env).settings.upstream_headers == {
        "X-Team": "blue",
        "Authorization": "Bearer a=b",
    }
    table = '[upstream_headers]\nX-Team = "red"\n'
    assert resolved(tmp_path, file=table).settings.upstream_headers == {"X-Team": "red"}


# -------------------------------------------------------------------------------------- bad numbers


@pytest.mark.parametrize(
    ("name", "given", "used"),
    [
        ("lease_seconds", "0", 1.0),
        ("lease_seconds", "-3", 1.0),
        ("lease_seconds", "1e9", 3600.0),
        ("lease_seconds", "inf", 3600.0),
        ("lease_seconds", "nan", 15.0),
        ("lease_seconds", "fifteen", 15.0),
        ("lease_seconds", "15 s", 15.0),
        ("concurrency", "0", 1),
        ("concurrency", "1000", 256),
        ("concurrency", "2.5", 4),
        ("concurrency", "many", 4),
    ],
)
def test_a_number_that_cannot_be_used_warns_once_and_is_clamped(
    tmp_path: Path, name: str, given: str, used: float
) -> None:
    variable = f"HARNESS_DURABLE_{name.upper()}"
    with pytest.warns(UserWarning) as caught:
        found = resolved(tmp_path, env={variable: given})
    assert getattr(found.settings, name) == used
    (warning,) = caught
    assert all(word in str(warning.message) for word in (name, repr(given), variable, f"{used:g}"))


@pytest.mark.parametrize(
    "line", ["concurrency = inf", "concurrency = nan", "concurrency = true", "concurrency = []"]
)
def test_whatever_stands_in_the_file_for_a_number_a_number_is_used(tmp_path: Path, line: str) -> None:
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        found = resolved(tmp_path, file=line)
    assert 1 <= found.settings.concurrency <= 256


@pytest.mark.parametrize(
    ("name", "given", "used"),
    [
        ("lease_seconds", "1", 1),
        ("lease_seconds", "3600", 3600),
        ("lease_seconds", "2.5", 2.5),
        ("concurrency", "256", 256),
    ],
)
def test_a_number_within_its_bounds_is_used_without_a_word(
    tmp_path: Path, name: str, given: str, used: float
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = resolved(tmp_path, env={f"HARNESS_DURABLE_{name.upper()}": given})
    assert getattr(found.settings, name) == used


def test_a_bad_number_that_a_flag_overrides_is_no_matter(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = resolved(tmp_path, env={"HARNESS_DURABLE_CONCURRENCY": "0"}, concurrency=3)
    assert (found.settings.concurrency, found.origins["concurrency"]) == (3, "flag")


# ----------------------------------------------------------------- the World and the app, and no more


@pytest.mark.parametrize("flags", [{}, {"world": "sqlite:flag"}, {"app": "flag"}, {"world": ""}])
@pytest.mark.parametrize("env", [{}, {"WORLD": "sqlite:env"}, {"APP": "env", "WORLD": ""}, {"APP": "\udcff"}])
@pytest.mark.parametrize(
    "file", ["", 'world = "sqlite:file"', 'app = "file"\nmodel = "x"', "app = 3", 'wrold = "x"', "app = "]
)
def test_who_asks_for_the_world_and_the_app_alone_is_told_the_same(
    tmp_path: Path, flags: dict[str, str], env: dict[str, str], file: str
) -> None:
    variables = {f"HARNESS_DURABLE_{name}": value for name, value in env.items()}

    def told(ask: Callable[[], tuple[str, str]]) -> tuple[str, str] | str:
        try:
            return ask()
        except BadSetting as error:
            return str(error)

    def all_of_them() -> tuple[str, str]:
        settings = resolved(tmp_path, file=file, env=variables, **flags).settings
        return settings.world, settings.app

    expected = told(all_of_them)
    assert told(lambda: where(flags.get("world"), flags.get("app"), variables, tmp_path)) == expected


def test_a_command_that_needs_no_other_setting_says_nothing_of_it(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = where(None, None, {"HARNESS_DURABLE_CONCURRENCY": "0"}, tmp_path)
    assert found == ("sqlite:.harness-durable/world.db", "default")


# ------------------------------------------------------------------------------------- other mistakes


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"app = ", "cannot be read"),
        (b"app = '\xff'", "cannot be read"),
        (b"ap = 'x'\nwrold = 'y'", "unknown settings: ap, wrold"),
        (b"app = 3", "app"),
    ],
)
def test_a_bad_file_is_named_with_what_is_wrong(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(BadSetting, match=says) as error:
        resolved(tmp_path)
    assert str(tmp_path / FILE) in str(error.value)


def test_a_file_that_is_no_file_is_said_to_be_so(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with pytest.raises(BadSetting, match="cannot be read"):
        resolved(tmp_path)


def test_a_word_that_is_not_one_of_the_known_ones_is_refused_with_its_origin(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"HARNESS_DURABLE_UPSTREAM_AUTH.*'key' or 'login'"):
        resolved(tmp_path, env={"HARNESS_DURABLE_UPSTREAM_AUTH": "none"})


def test_a_flag_that_is_no_setting_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="wrold"):
        resolved(tmp_path, wrold="sqlite:x")


def test_settings_cannot_be_changed_afterwards(tmp_path: Path) -> None:
    found = resolved(tmp_path).settings
    with pytest.raises(ValueError, match="frozen"):
        found.app = "another"  # pyright: ignore[reportAttributeAccessIssue]


# ------------------------------------------------------------------------------------------- secrets


def test_no_secret_is_in_what_settings_look_like(tmp_path: Path) -> None:
    found = resolved(
        tmp_path,
        env={"ANTHROPIC_API_KEY": SECRET, "HARNESS_DURABLE_UPSTREAM_HEADERS": f"Authorization={SECRET}"},
        world=f"postgresql://u:{SECRET}@h/db",
        upstream_url=f"https://u:{SECRET}@proxy.example",
    )
    for shown in (repr(found), str(found), repr(found.settings), f"{found.settings.upstream_key}"):
        assert SECRET not in shown


@pytest.mark.parametrize("name", ["UPSTREAM_AUTH", "LEASE_SECONDS"])
def test_a_key_is_not_shown_when_another_setting_is_wrong(tmp_path: Path, name: str) -> None:
    env = {"ANTHROPIC_API_KEY": SECRET, f"HARNESS_DURABLE_{name}": "nonsense"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            said = repr(resolved(tmp_path, env=env))
        except BadSetting as error:
            said = str(error)
    assert SECRET not in said + "".join(str(warning.message) for warning in caught)


def test_a_key_of_a_wrong_shape_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(BadSetting) as error:
        resolved(tmp_path, file=f'upstream_key = ["{SECRET}"]')
    assert SECRET not in str(error.value) and error.value.__cause__ is None


def test_a_host_has_no_folder_of_workspaces_unless_it_is_told(tmp_path: Path) -> None:
    assert resolve(environ={}, folder=tmp_path).settings.workspaces is None
    told = resolve(environ={"HARNESS_DURABLE_WORKSPACES": "/srv/work"}, folder=tmp_path)
    assert told.settings.workspaces == Path("/srv/work")
