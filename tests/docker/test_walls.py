"""What a harness in a container cannot do, tried from inside."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketStream

from harness_durable.errors import BadSetting, KeeperGone, SandboxUnavailable, StaleEpoch
from harness_durable.testing.sandboxes.bench import everything, said_by
from harness_durable_sandboxes.docker import DockerSandbox
from harness_durable_sandboxes.link import KeeperLink
from tests.docker.engine_kit import Engine, given
from tests.docker.life_kit import TOKEN, container, life, shell, spec

KEY = "sk-canary-0123456789abcdef"

NETWORK = """
import os, socket, sys
print(sorted(os.listdir("/sys/class/net")))
for where in ("1.1.1.1", "10.0.0.1", "169.254.169.254", "172.17.0.1"):
    with socket.socket() as sock:
        sock.settimeout(5)
        try:
            sock.connect((where, 80))
        except OSError as error:
            print(where, error.strerror or "no answer")
        else:
            print(where, "REACHED")
try:
    print(socket.getaddrinfo("example.com", 80))
except OSError:
    print("no names")
"""


async def test_there_is_no_network_but_its_own_loopback(sandbox: DockerSandbox, workspace: Path) -> None:
    said = await shell(sandbox, workspace, 'exec python3 -c "$NETWORK"', env={"NETWORK": NETWORK})
    assert said.startswith("['lo']\n")
    assert said.count("Network is unreachable") == 4, said
    assert "no names" in said


async def test_it_is_nobody_with_any_rights(sandbox: DockerSandbox, workspace: Path) -> None:
    said = await shell(
        sandbox, workspace, "id -u; id -g; grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status"
    )
    lines = [line.replace("\t", " ") for line in said.splitlines()]
    assert lines[:2] == ["1000", "1000"]
    none = "0000000000000000"
    assert [line for line in lines[2:] if "Cap" in line] == [
        f"Cap{name}: {none}" for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")
    ]
    assert "NoNewPrivs: 1" in lines
    assert "Seccomp: 2" in lines


async def test_it_can_write_where_it_works_and_nowhere_else(sandbox: DockerSandbox, workspace: Path) -> None:
    script = (
        'cp /bin/true /tmp/x && /tmp/x && echo "/tmp runs"; '
        'for d in / /etc /usr/bin /opt/harness-durable/keeper /var/tmp /run "$HOME" /tmp . "$HOME/.."; do '
        'if (: > "$d/x") 2>/dev/null; then echo "$d yes"; else echo "$d no"; fi; done'
    )
    said = await shell(sandbox, workspace, script)
    allowed = [line.removesuffix(" yes") for line in said.splitlines() if line.endswith(" yes")]
    assert [place for place in allowed if "/home" not in place] == ["/tmp", "."], said
    assert len(allowed) == 3, said
    assert "/tmp runs" in said, "compilers and test runners put programs there"
    assert (workspace / "x").stat().st_uid == 1000


async def test_nothing_of_the_worker_is_in_there(
    sandbox: DockerSandbox, workspace: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    script = (
        "cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; env; grep -rl canary / 2>/dev/null; echo end"
    )
    wanted = spec(workspace, "sh", "-c", script)
    async with life(sandbox, wanted) as (ref, link):
        _, said = await said_by(link, b"end\n")
        assert KEY not in said.decode()
        assert "HOME=" in said.decode()
        with engine.api() as api:
            about = api.inspect_container(container(engine, ref))
            logs = api.logs(container(engine, ref)).decode()
    for secret in (KEY, TOKEN):
        assert secret not in str(about), "whoever may ask the engine can read it"
        assert secret not in logs
    assert about["Mounts"], "there is something to look at"
    assert not any("docker.sock" in mount["Source"] for mount in about["Mounts"])


DIAL = """
import json, os, socket, sys
run = os.path.dirname(os.environ["HOME"]) + "/keeper"
os.chdir(run)
print(sorted(os.listdir(".")))
with socket.socket(socket.AF_UNIX) as sock:
    sock.connect("ctl.sock")
    hello = {"v": 1, "token": sys.argv[1], "op": "attach", "epoch": 99}
    try:
        sock.sendall(json.dumps(hello).encode() + b"\\n")
        print("answer", sock.recv(1000))
    except (ConnectionResetError, BrokenPipeError):
        print("answer b''")
print(os.path.exists("../token"), flush=True)
sys.stdin.read()
"""


async def test_the_keeper_does_not_let_its_own_harness_in(sandbox: DockerSandbox, workspace: Path) -> None:
    """Who is inside has the token, as its key to the gateway; but it has a pid there, and no worker has."""
    async with life(sandbox, spec(workspace, "python3", "-c", DIAL, TOKEN)) as (ref, link):
        _, said = await said_by(link, b"False\n")
        assert b"spec.json" not in said
        assert b"answer b''" in said, said
        assert await sandbox.alive(ref)
        await link.write(b"still mine\n")


async def test_what_must_not_be_seen_is_covered(
    sandbox: DockerSandbox, workspace: Path, tmp_path: Path
) -> None:
    """Logs and other lives, in a workspace that holds them, whatever the names by which they are reached."""
    state, deep = workspace / ".harness-durable", workspace / "a/b/log"
    deep.mkdir(parents=True)
    state.mkdir()
    for path in (state / "secret", deep / "secret", workspace / "mine"):
        path.write_text("canary")
    (tmp_path / "link").symlink_to(deep.parent)
    given(workspace)
    hidden = (str(state), str(tmp_path / "link/log"), str(workspace / "not-there"), str(tmp_path / "other"))
    script = (
        "cat mine; ls -A .harness-durable a/b/log; mv a moved; mv a/b b; mv .harness-durable c; echo x > d"
    )
    said = await shell(sandbox, workspace, script, hidden=hidden)
    assert said.count("canary") == 1
    assert "secret" not in said
    assert said.count("Device or resource busy") == 3, said
    assert (workspace / "d").exists(), "it could have moved them"
    assert not (workspace / "not-there").exists()


async def test_lives_below_the_workspace_are_covered_but_for_ones_own(
    workspace: Path, engine: Engine
) -> None:
    lives = workspace / "state" / "run"
    lives.mkdir(parents=True)
    sandbox = DockerSandbox(lives, {"image": "hd-test:1"})
    async with life(sandbox, spec(workspace, "cat")) as (other, _):
        said = await shell(
            sandbox,
            workspace,
            f"find state -type f 2>&1; cat {other.run_dir}/token; "
            'echo "$HOME"; echo kept > "$HOME/x"; cat "$HOME/x"',
            hidden=(str(lives),),
        )
    assert TOKEN not in said
    assert other.life not in said.replace(f"cat: {other.run_dir}/token", "")
    assert "/home\nkept\n" in said


async def test_a_workspace_that_is_a_log_is_refused(sandbox: DockerSandbox, workspace: Path) -> None:
    with pytest.raises(BadSetting, match="no agent may see"):
        await sandbox.start(spec(workspace, "cat", hidden=(str(workspace),)), 1)


async def test_a_log_among_the_files_of_a_workspace_is_refused(
    sandbox: DockerSandbox, workspace: Path
) -> None:
    """It could be covered, but not what takes its place, such as SQLite's next WAL."""
    (workspace / "world.db").touch()
    with pytest.raises(BadSetting, match="folder of its own"):
        await sandbox.start(spec(workspace, "cat", hidden=(str(workspace / "world.db"),)), 1)


async def let_go(link: KeeperLink) -> None:
    """A harness that does harm waits for this, else it can do it before its own worker is attached."""
    await link.write(b"go\n")


SWAP = """
import os, sys
sys.stdin.readline()
os.chdir(os.path.dirname(os.environ["HOME"]) + "/keeper")
for name in ("out.log", "err.log", "in.log", "exit.json"):
    if os.path.exists(name):
        os.unlink(name)
    if sys.argv[1] == "fifo":
        os.mkfifo(name)
    else:
        os.symlink(sys.argv[1], name)
sys.stdout.write("x" * 100000)
sys.stdout.flush()
sys.stdin.read()
"""


@pytest.mark.parametrize("trick", ["link", "fifo"])
async def test_what_a_harness_puts_in_place_of_the_keeper_s_files_is_not_read(
    sandbox: DockerSandbox, workspace: Path, tmp_path: Path, trick: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("canary" * 100000)
    what = str(secret) if trick == "link" else "fifo"
    async with life(sandbox, spec(workspace, "python3", "-c", SWAP, what)) as (ref, link):
        await let_go(link)
        with anyio.fail_after(20):
            with pytest.raises(SandboxUnavailable, match=r"out\.log"):
                async for _, chunk in link.output():
                    assert b"canary" not in chunk
            for read in (link.errors(), link.said()):
                with pytest.raises(SandboxUnavailable):
                    await read
            await link.kill()
            found = await sandbox.ending(ref)
            assert found is None, "its keeper is there"


FAKE = """
import os, socket, sys
sys.stdin.readline()
os.chdir(os.path.dirname(os.environ["HOME"]) + "/keeper")
os.unlink("ctl.sock")
with socket.socket(socket.AF_UNIX) as door:
    door.bind("ctl.sock")
    os.chmod("ctl.sock", 0o777)
    door.listen()
    print("open", flush=True)
    while True:
        caller, _ = door.accept()
        with caller:
            caller.recv(10000)
            caller.sendall(os.environ["SAYS"].encode() + b"\\n")
"""


GREETING = '{"v": 1, "ok": true, "pid": 1, "in": 0, "out": 0, "exit": null, "epoch": '


@pytest.mark.parametrize(
    "says",
    ["hello", "[]", '{"v": 1, "ok": true}', GREETING + '"x"}', GREETING + "Infinity}", "[" * 5000],
)
async def test_who_poses_as_the_keeper_is_found_out_and_ended(
    sandbox: DockerSandbox, workspace: Path, says: str
) -> None:
    wanted = spec(workspace, "python3", "-c", FAKE, env={"SAYS": says})
    async with life(sandbox, wanted) as (ref, link):
        await let_go(link)
        await said_by(link, b"open\n")
        with pytest.raises(KeeperGone, match="not its keeper"):
            await sandbox.attach(ref, 2)
        assert await sandbox.reap(ref) is True
        assert not await sandbox.alive(ref)


async def test_who_poses_as_the_keeper_of_a_newer_worker_is_ended_when_the_log_knows_of_none(
    sandbox: DockerSandbox, workspace: Path
) -> None:
    says = '{"v": 1, "ok": false, "error": "stale epoch", "epoch": 999}'
    wanted = spec(workspace, "python3", "-c", FAKE, env={"SAYS": says})
    async with life(sandbox, wanted) as (ref, link):
        await let_go(link)
        await said_by(link, b"open\n")
        with pytest.raises(StaleEpoch):
            await sandbox.reap(ref, 2)
        assert await sandbox.alive(ref), "the log was not asked yet"
        assert await sandbox.reap(ref) is True
        assert not await sandbox.alive(ref)


ELSEWHERE = """
import os, socket, sys
sys.stdin.readline()
os.chdir(os.path.dirname(os.environ["HOME"]) + "/keeper")
os.unlink("ctl.sock")
if sys.argv[1]:
    os.symlink(sys.argv[1], "ctl.sock")
print("moved", flush=True)
with socket.create_connection(("127.0.0.1", 8484)) as model:
    model.sendall(b"x")
    sys.stdin.read()
"""


async def test_a_link_in_place_of_the_keeper_s_socket_is_not_followed(
    sandbox: DockerSandbox, workspace: Path, tmp_path: Path
) -> None:
    """Who else has a socket on this host, such as the engine itself, is not spoken to."""
    heard: list[bytes] = []

    async def hear(stream: SocketStream) -> None:
        heard.append(await stream.receive())

    async with await anyio.create_unix_listener(tmp_path / "s") as other, anyio.create_task_group() as tasks:
        tasks.start_soon(other.serve, hear)
        async with life(sandbox, spec(workspace, "python3", "-c", ELSEWHERE, f"{tmp_path}/s")) as (ref, link):
            await let_go(link)
            await said_by(link, b"moved\n")
            assert not await sandbox.alive(ref)
            with pytest.raises(KeeperGone):
                await sandbox.attach(ref, 2)
        tasks.cancel_scope.cancel()
    assert heard == []


async def test_a_life_whose_socket_is_deleted_is_over_for_all_who_wait(
    sandbox: DockerSandbox, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request of it can be taken any more: else its model would never answer, and nobody would know."""
    monkeypatch.setattr("harness_durable_sandboxes.link.GOODBYE_TIME", 0.2)
    async with life(sandbox, spec(workspace, "python3", "-c", ELSEWHERE, "")) as (_, link):
        await let_go(link)
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_takes_all, link)
                with pytest.raises(KeeperGone):
                    await everything(link)


async def _takes_all(link: KeeperLink) -> None:
    with suppress(KeeperGone):
        async for _ in link.requests():
            raise AssertionError("it was taken")


async def test_what_a_harness_leaves_cannot_be_used_to_reach_out_when_it_is_deleted(
    sandbox: DockerSandbox, workspace: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    (outside / "kept").chmod(0o640)
    links = f'ln -s {outside} "$HOME/a"; ln -s {outside}/kept "$HOME/b"; '
    script = links + 'mkdir "$HOME/c"; chmod 0 "$HOME/c"; exit 0'
    await shell(sandbox, workspace, script)
    assert (outside / "kept").stat().st_mode & 0o777 == 0o640


async def test_another_life_s_container_is_no_worker(
    sandbox: DockerSandbox, workspace: Path, engine: Engine
) -> None:
    """It is not seen there, so that nobody can try."""
    async with life(sandbox, spec(workspace, "cat")) as (other, _):
        said = await shell(sandbox, workspace, f"ls {other.run_dir} {Path(other.run_dir).parent}")
        assert other.life not in said.replace(f"'{other.run_dir}'", ""), said
        assert await sandbox.alive(other)


async def test_limits_are_those_of_the_options(
    sandbox: DockerSandbox, workspace: Path, engine: Engine
) -> None:
    options = {"memory": "256m", "pids": "64", "cpus": "0.5", "tmp": "8m"}
    wanted = spec(workspace, "sh", "-c", "df -k /tmp | tail -1; echo end; cat", options=options)
    async with life(sandbox, wanted) as (ref, link):
        _, said = await said_by(link, b"end\n")
        assert said.split()[1] == b"8192", said
        with engine.api() as api:
            config = api.inspect_container(container(engine, ref))["HostConfig"]
    assert config["Memory"] == config["MemorySwap"] == 256 << 20
    assert (config["PidsLimit"], config["NanoCpus"]) == (64, 500_000_000)


async def test_a_harness_s_program_is_there_and_cannot_be_changed(
    sandbox: DockerSandbox, workspace: Path, tmp_path: Path
) -> None:
    program = tmp_path / "opt" / "tool"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho ran as $(id -u)\necho x >> $0\n")
    program.chmod(0o755)
    wanted = spec(workspace, str(program), reads=(str(program.parent),))
    async with life(sandbox, wanted) as (_, link):
        _, said = await said_by(link, b"1000\n")
        assert said == b"ran as 1000\n"
    assert program.read_text().endswith("$0\n")


async def test_a_life_of_an_earlier_boot_is_gone(sandbox: DockerSandbox) -> None:
    ref = sandbox.locate("life-1")
    with pytest.raises(KeeperGone):
        await sandbox.attach(ref, 1)
    assert await sandbox.ending(ref) is None
