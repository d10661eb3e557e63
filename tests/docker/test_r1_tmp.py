from __future__ import annotations
from pathlib import Path
import pytest
from tests.docker.test_turns import *
from tests.docker.test_turns import everything_in_docker
POSE = r'''
import os, socket, json
os.chdir(os.path.dirname(os.environ["HOME"]) + "/keeper")
os.rename("ctl.sock", "old.sock")
door = socket.socket(socket.AF_UNIX); door.bind("ctl.sock"); os.chmod("ctl.sock", 0o777); door.listen()
if os.fork(): os._exit(0)
os.setsid()
for fd in (0, 1, 2): os.close(fd)
while True:
    caller, _ = door.accept()
    try:
        caller.recv(10000); caller.sendall(b'{"v": 1, "ok": false, "error": "stale epoch", "epoch": 999}\n')
    except OSError: pass
    caller.close()
'''
@pytest.mark.parametrize("adapter", ["claude-code"])
async def test_pose(tmp_path: Path, engine: Engine, adapter: str) -> None:
    pose = shell(adapter, "got")
    pose.input["command"] += "; python3 pose.py"
    with scene_of(tmp_path, adapter, Script((does(pose), say("on I went")))) as scene:
        (scene.workspace / "pose.py").write_text(POSE); given(scene.workspace)
        import subprocess
        w = scene.worker()
        try: w.wait(timeout=45)
        except subprocess.TimeoutExpired: print(scene.tail(), open(scene.errors).read()[-3000:]); subprocess.run(["/work/main/.venv/bin/py-spy","dump","--pid",str(w.pid)]); print(engine.names())
        assert scene.worker().wait(timeout=40) == 0, scene.tail()
        report = await examine(scene, Expectation(once=("got",)))
        print(scene.tail()); print(report)
        assert (report.violations, report.unknown) == ([], 0), scene.tail()
