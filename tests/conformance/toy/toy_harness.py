"""The smallest harness: a program that talks to a model, and runs the commands that it is asked for.

It speaks a JSON object a line. On its input: ``message`` (with a number), ``continue``, ``stop``, and
``answer`` to what it asked. On its output: ``hello``, ``line`` (a new one of its transcript), ``ask`` before
a call runs, ``result`` after it, and ``settled``. After ``ask`` and ``result`` nothing goes on without an
answer. Its transcript is a file of messages in the model's own form. It knows nothing of us."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

HOME = Path(os.environ["HOME"])
SHELL = {"name": "bash", "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}}}


class Stopped(Exception):
    """Somebody said stop."""


class Toy:
    def __init__(self) -> None:
        lines = (HOME / "transcript.jsonl").read_text().splitlines()
        self.messages: list[dict[str, Any]] = [json.loads(line) for line in lines]
        self.custom: list[dict[str, Any]] = json.loads((HOME / "tools.json").read_text())
        self.waiting: list[dict[str, Any]] = []
        self.asked = 0
        self.held = b""

    def say(self, kind: str, **members: object) -> None:
        sys.stdout.write(json.dumps({"type": kind, **members}) + "\n")
        sys.stdout.flush()

    def hear(self, patience: float | None) -> dict[str, Any] | None:
        """The next frame; None if there is none in time."""
        while b"\n" not in self.held:
            if not select.select([0], [], [], patience)[0]:
                return None
            chunk = os.read(0, 1 << 16)
            if not chunk:
                sys.exit(0)
            self.held += chunk
        line, _, self.held = self.held.partition(b"\n")
        return json.loads(line)

    def look(self, patience: float | None = 0.0) -> dict[str, Any] | None:
        """The same; messages wait until the model is asked again. Raises ``Stopped``."""
        frame = self.hear(patience)
        if frame is not None and frame["type"] == "stop":
            raise Stopped
        if frame is not None and frame["type"] == "message":
            self.waiting.append(frame)
            return None
        return frame

    def ask(self, kind: str, **about: object) -> dict[str, Any]:
        self.asked += 1
        self.say(kind, id=str(self.asked), **about)
        while True:
            frame = self.look(None)
            if frame is not None and frame.get("id") == str(self.asked):
                return frame

    def add(self, message: dict[str, Any]) -> None:
        self.messages.append(message)
        self.say("line", line=json.dumps(message))

    def take_waiting(self) -> None:
        for frame in self.waiting:
            self.add({"role": "user", "content": frame["text"], "number": frame["number"]})
        self.waiting.clear()

    def turn(self) -> None:
        try:
            while True:
                self.take_waiting()
                message = self.model()
                self.add(message)
                calls = [block for block in message["content"] if block["type"] == "tool_use"]
                for call in calls:
                    text, failed = self.call(call)
                    result = {"type": "tool_result", "tool_use_id": call["id"], "content": text}
                    self.add({"role": "user", "content": [{**result, "is_error": failed}]})
                self.look()
                if not calls and not self.waiting:
                    said = [block["text"] for block in message["content"] if block["type"] == "text"]
                    return self.say("settled", text="".join(said))
        except Stopped:
            self.say("settled", text="", stopped=True)
        except OSError as error:
            self.say("settled", text=str(error), failed=True)

    def model(self) -> dict[str, Any]:
        body = {"model": os.environ["TOY_MODEL"], "max_tokens": 1000, "stream": True}
        said = [{"role": one["role"], "content": one["content"]} for one in self.messages]
        request = urllib.request.Request(
            f"{os.environ['TOY_URL']}/v1/messages",
            json.dumps({**body, "messages": said, "tools": [SHELL, *self.custom]}).encode(),
            {"content-type": "application/json", "x-api-key": os.environ["TOY_KEY"]},
        )
        blocks: list[dict[str, Any]] = []
        with urllib.request.urlopen(request) as answer:
            for line in answer:
                if not line.startswith(b"data:"):
                    continue
                event = json.loads(line[5:])
                if event["type"] == "content_block_start":
                    blocks.append({**event["content_block"], "parts": ""})
                elif event["type"] == "content_block_delta":
                    delta = event["delta"]
                    blocks[-1]["parts"] += delta.get("text", "") + delta.get("partial_json", "")
        for block in blocks:
            parts = block.pop("parts")
            if block["type"] == "text":
                block["text"] += parts
            else:
                block["input"] = json.loads(parts or "{}")
        return {"role": "assistant", "content": blocks}

    def call(self, call: dict[str, Any]) -> tuple[str, bool]:
        about = {"call": call["id"], "tool": call["name"], "input": call["input"]}
        answer = self.ask("ask", **about)
        if not answer.get("run"):
            return answer["text"], answer["failed"]
        text, failed = self.run(call["input"]["command"])
        self.ask("result", call=call["id"], text=text, failed=failed)
        return text, failed

    def run(self, command: str) -> tuple[str, bool]:
        pipe = subprocess.PIPE
        with subprocess.Popen(command, shell=True, stdout=pipe, stderr=subprocess.STDOUT) as process:
            try:
                while process.poll() is None:
                    self.look(0.05)
            except Stopped:
                process.kill()
                raise
            out = process.stdout
            return (out.read().decode() if out is not None else ""), process.returncode != 0


def main() -> None:
    toy = Toy()
    toy.say("hello")
    while True:
        frame = toy.hear(None)
        if frame is None or frame["type"] not in ("message", "continue"):
            continue
        if frame["type"] == "message":
            toy.waiting.append(frame)
        toy.turn()


if __name__ == "__main__":
    main()
