"""What has to be there before a life can begin, and what is said if it is not."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from harness_durable import registry
from harness_durable.cli.doctor import sandbox_rows
from harness_durable.errors import BadSetting, HarnessMissing, SandboxUnavailable, WorkspaceMissing
from harness_durable.sandbox import FoundLife
from harness_durable.settings import resolve
from harness_durable_sandboxes.docker import DockerSandbox, image
from harness_durable_sandboxes.docker.engine import Engine as Client
from harness_durable_sandboxes.docker.health import unfit
from harness_durable_sandboxes.docker.life import hand_over
from harness_durable_sandboxes.docker.options import IMAGE as OURS
from tests.docker.engine_kit import IMAGE, Engine
from tests.docker.life_kit import life, shell, spec


def test_it_is_found_by_its_name() -> None:
    assert registry.load("sandbox", "docker") is DockerSandbox


# --------------------------------------------------------------------------------------- options


def test_all_options_of_a_session_are_said_when_it_is_made(tmp_path: Path) -> None:
    sandbox = DockerSandbox(tmp_path)
    found = sandbox.complete({"memory": "1g"})
    assert found["memory"] == "1g"
    assert found["image"] == OURS
    assert sandbox.complete(found) == found


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("imgae", "x"),
        ("image", "-v/:/host"),
        ("memory", "lots"),
        ("memory", "1m"),
        ("tmp", "0"),
        ("cpus", "nan"),
        ("cpus", "0"),
        ("pids", "1"),
        ("user", "root"),
        ("user", "0"),
        ("user", "0:1000"),
        ("allow", "10.0.0.1"),
        ("allow", "https://example.com"),
        ("allow_private", "*"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused(tmp_path: Path, option: str, value: str) -> None:
    with pytest.raises(BadSetting, match=rf"{option}|{re.escape(repr(value))} cannot be allowed"):
        DockerSandbox(tmp_path).complete({option: value})


# ------------------------------------------------------------------------------------- who it is


async def test_root_s_files_are_worked_on_by_nobody_unless_one_is_named(
    sandbox: DockerSandbox, workspace: Path
) -> None:
    os.chown(workspace, 0, 0)
    with pytest.raises(BadSetting, match=r"chown -R 1000:1000 .*user=UID:GID"):
        await sandbox.start(spec(workspace, "cat"), 1)
    said = await shell(sandbox, workspace, "id -u; id -g; ls -ld .", options={"user": "1234:99"})
    assert said.split()[:2] == ["1234", "99"]


async def test_the_harness_is_whoever_owns_the_workspace(sandbox: DockerSandbox, workspace: Path) -> None:
    os.chown(workspace, 4242, 0)
    said = await shell(sandbox, workspace, 'id -u; id -g; touch made "$HOME/made" && echo wrote')
    assert said.split() == ["4242", "4242", "wrote"]
    assert (workspace / "made").stat().st_uid == 4242


@pytest.mark.parametrize("path", ["/", "/tmp", "/usr"])
async def test_a_folder_that_every_container_has_is_no_workspace(sandbox: DockerSandbox, path: str) -> None:
    for user in ("", "1000:1000"):
        with pytest.raises(BadSetting, match="folder below it"):
            await sandbox.start(spec(Path(path), "cat", options={"user": user}), 1)


async def test_a_missing_workspace_is_said_so(sandbox: DockerSandbox, tmp_path: Path) -> None:
    """Also to a session that has settled long ago who works there."""
    for user in ("", "1000:1000"):
        with pytest.raises(WorkspaceMissing, match="put it back"):
            await sandbox.start(spec(tmp_path / "gone", "cat", options={"user": user}), 1)


def test_what_is_handed_over_is_ours_and_lies_in_there(tmp_path: Path) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    for path in (folder / "a/b", outside):
        path.mkdir(parents=True)
        (path / "file").touch()
    (folder / "theirs").touch()
    os.chown(folder / "theirs", 7, 7)
    for name, target in (("dir", outside), ("file", outside / "file"), ("nothing", "gone")):
        (folder / name).symlink_to(target)
    hand_over(folder, (1234, 99))
    owners = {str(path.relative_to(tmp_path)): path.lstat().st_uid for path in tmp_path.rglob("*")}
    assert {name for name, uid in owners.items() if uid == 0} == {"outside", "outside/file"}
    assert owners["folder/theirs"] == 7


# ---------------------------------------------------------------------------------------- images


async def test_an_image_that_is_not_here_is_named_with_the_command_that_helps(
    sandbox: DockerSandbox, workspace: Path
) -> None:
    options = {"image": "example.com/nothing:1"}
    help_ = "--sandbox docker --sandbox-option image=example.com/nothing:1"
    with pytest.raises(BadSetting, match=re.escape(help_)):
        await sandbox.ready(options)
    with pytest.raises(BadSetting, match=re.escape(help_)) as missing:
        await sandbox.start(spec(workspace, "cat", options=options), 1)
    assert missing.value.why == "image_missing"
    with pytest.raises(BadSetting, match="--sandbox docker`"):
        await sandbox.ready({"image": OURS})
    assert await sandbox.list_lives() == []


async def test_an_image_without_python_is_said_to_be_one(
    sandbox: DockerSandbox, workspace: Path, engine: Engine
) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("nothing"))
    with engine.api() as api:
        api.import_image_from_data(content.getvalue(), repository="hd-empty", tag="1")
    with pytest.raises(BadSetting, match="hd-empty:1 has no python3"):
        await sandbox.start(spec(workspace, "cat", options={"image": "hd-empty:1"}), 1)


async def test_a_missing_harness_is_told_from_a_missing_image(
    sandbox: DockerSandbox, workspace: Path
) -> None:
    with pytest.raises(HarnessMissing, match="no-such-program"):
        await sandbox.start(spec(workspace, "no-such-program"), 1)


async def test_our_image_is_built_from_the_shipped_recipe_and_works(
    sandbox: DockerSandbox, workspace: Path, engine: Engine
) -> None:
    """With another base: this machine has no registry. What that has already is left as it is."""
    with engine.api() as api:
        api.tag(IMAGE, "hd-base", "1")
    told: list[str] = []
    recipe = {"buildargs": {"BASE": "hd-base:1"}, "network_mode": "none"}
    try:
        said = await image.install(Client(), OURS, told.append, **recipe)
        assert OURS in said
        assert told[0] == f"building {OURS}"
        assert any("FROM" in line for line in told), told
        assert await image.install(Client(), OURS, told.append) == said, "what is here is left alone"
        again = await shell(sandbox, workspace, "python3 --version; git --version", options={"image": OURS})
        assert "git version" in again
    finally:
        with engine.api() as api:
            for name in (OURS, "hd-base:1"):
                api.remove_image(name, force=True)


async def test_a_build_that_fails_says_why(engine: Engine) -> None:
    recipe = {"buildargs": {"BASE": ""}}
    with pytest.raises(SandboxUnavailable, match=r"could not be made: .*base name"):
        await image.install(Client(), OURS, lambda _: None, **recipe)


# --------------------------------------------------------------------------------------- engines


@pytest.mark.parametrize("where", ["ssh://somebody@elsewhere", "tcp://192.0.2.1:2375"])
async def test_an_engine_on_another_machine_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", where)
    with pytest.raises(BadSetting, match="another machine"):
        await DockerSandbox(tmp_path).ready({})


async def test_an_engine_that_is_not_there_is_the_machinery_s_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(SandboxUnavailable, match=r"none\.sock cannot be reached \(.*No such file"):
        await DockerSandbox(tmp_path).ready({})


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"OSType": "linux", "SecurityOptions": ["name=seccomp,profile=default"]}, ""),
        ({"OSType": "linux", "SecurityOptions": None}, ""),
        ({"OSType": "windows"}, "Linux containers"),
        ({"OSType": "linux", "OperatingSystem": "Docker Desktop"}, "virtual machine"),
        ({"OSType": "linux", "SecurityOptions": ["name=rootless"]}, "user ids"),
        ({"OSType": "linux", "SecurityOptions": ["name=userns"]}, "user ids"),
    ],
)
def test_engines_that_cannot_be_used_are_known(about: dict[str, object], said: str) -> None:
    assert (said in unfit(about)) if said else unfit(about) == ""


async def test_the_doctor_looks_from_the_engine_to_a_life(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = {"sandbox": "docker", "run_dir": tmp_path, "sandbox_options": {"image": IMAGE}}
    rows = [row async for row in sandbox_rows(resolve(flags, environ={}).settings)]
    states = {row.name.removeprefix("docker "): row.state for row in rows}
    assert states == {"engine": "ok", "limits": "ok", "restart": "warn", "image": "ok", "life": "ok"}
    flags["sandbox_options"] = {"image": "hd-not-there:1"}
    rows = [row async for row in sandbox_rows(resolve(flags, environ={}).settings)]
    assert rows[-1].state == "fail"
    assert "harness-durable install" in rows[-1].detail
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    rows = [row async for row in sandbox_rows(resolve(flags, environ={}).settings)]
    assert [(row.name, row.state) for row in rows] == [("docker engine", "fail")]


# --------------------------------------------------------------------------------------- orphans


async def test_lives_are_listed_with_whose_they_are_also_if_only_a_container_is_left(
    sandbox: DockerSandbox, workspace: Path, engine: Engine, tmp_path: Path
) -> None:
    stranger = DockerSandbox(tmp_path / "other", {"image": IMAGE})
    with engine.api() as api:
        made = api.create_container_from_config({"Image": IMAGE, "Cmd": ["true"]}, "not-ours")
    async with (
        life(sandbox, spec(workspace, "cat", origin="world-1")) as (ref, _),
        life(stranger, spec(workspace, "cat")) as (other, _),
    ):
        assert await sandbox.list_lives() == [FoundLife(ref, "session", "world-1")]
        (Path(ref.run_dir) / "origin.json").unlink()
        assert await sandbox.list_lives() == [FoundLife(ref, "session", "world-1")]
        assert await sandbox.reap(ref) is True
        assert await sandbox.list_lives() == []
        assert await stranger.alive(other), "it is in another folder of lives"
        assert "not-ours" in engine.names()
    with engine.api() as api:
        api.remove_container(made["Id"])


async def test_a_start_that_was_cut_off_half_way_is_reaped(
    sandbox: DockerSandbox, workspace: Path, engine: Engine
) -> None:
    """The container was made, and never started: as if its worker had died in between."""
    ref = sandbox.locate("life-1")
    name = f"hd-{ref.host.rpartition('/')[2][:12]}-life-1"
    marks = {"harness-durable.root": ref.host.rpartition("/")[2], "harness-durable.life": "life-1"}
    with engine.api() as api:
        api.create_container_from_config({"Image": IMAGE, "Cmd": ["true"], "Labels": marks}, name)
    assert [found.ref for found in await sandbox.list_lives()] == [ref]
    assert await sandbox.ending(ref) is None
    assert await sandbox.reap(ref) is True
    assert engine.names() == []


# ------------------------------------------------------------------------------ the command line


def test_what_a_sandbox_needs_is_installed_by_name(engine: Engine, tmp_path: Path) -> None:
    environment = {**os.environ, "HARNESS_DURABLE_RUN_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "harness_durable.cli.main", "install", "--sandbox"]

    def told(*words: str) -> tuple[int, str]:
        done = subprocess.run([*command, *words], env=environment, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    code, said = told("docker", "--sandbox-option", f"image={IMAGE}")
    assert (code, said.startswith(f"docker image {IMAGE}, ")) == (0, True), said
    assert told("local") == (0, "local nothing is needed\n")
    code, said = told("docker", "--sandbox-option", "image")
    assert (code, "NAME=VALUE" in said) == (2, True), said
