"""A session as one file that opens from disk: the same page, with its data inside.

The page's modules are put into one script, in the order in which they need each other. They are written so
that this is all it takes: they import only each other, and no two of them give a top-level name twice. What
surprises: the policy in the file names the script and the styles by their hashes, so that nothing else runs,
whatever an agent has said."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable

import msgspec

from harness_durable.changes import Clean
from harness_durable.journal import Reader
from harness_durable.view.changes import Difference, changes
from harness_durable.view.detail import Detail, Text, detail, said_of
from harness_durable.view.row import Row
from harness_durable.view.sheet import Sheet
from harness_durable.view.shipped import shipped

MOST_TEXT = 32 << 10
"""Characters of one text in a file."""

MESSAGES = 3
"""Messages of a model request that a file has besides the new ones."""

MOST_CHANGES = 2 << 20
"""Characters of all differences in a file."""

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w.]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) )", re.MULTILINE)


class Data(msgspec.Struct, frozen=True):
    """What a server would answer; ``changes`` by event and number. ``notes``: what the file lacks."""

    session: str
    rows: list[Row]
    head: int
    damage: str
    details: dict[str, Detail]
    said: dict[str, str]
    changes: dict[str, Difference] = {}
    notes: tuple[str, ...] = ()


async def html_page(reader: Reader, session: str, *, content: bool = True, clean: Clean | None = None) -> str:
    """The file. All it shows comes through ``reader``, which may redact, and the files that steps changed
    through ``clean``; without it they are left out. ``content`` of false: what was said is left out, and the
    page says so. Called by ``export --to html``. Raises what a reader does."""
    sheet = Sheet(reader, keep=True)
    await sheet.refresh()
    details: dict[str, Detail] = {}
    answers: list[int] = []
    for one in sheet.rows:
        if str(one.item) not in details:
            details[str(one.item)] = _slim(await detail(sheet, one.item))
        if one.word == "model.completed":
            answers.append(one.item)
    notes = () if content else ("What was said is left out of this file.",)
    rows = sheet.rows if content else [_silent(one) for one in sheet.rows]
    said = await said_of(sheet, answers) if content else {}
    files = await _changes(sheet, details.values(), clean) if content and clean is not None else {}
    return page(Data(session, rows, sheet.head, sheet.damage, details, said, files, notes))


async def _changes(sheet: Sheet, details: Iterable[Detail], clean: Clean) -> dict[str, Difference]:
    """Line by line, as long as there is room."""
    found, room = dict[str, Difference](), MOST_CHANGES
    for one in (change for known in details for change in known.changes):
        told = await changes(sheet, one.seq, one.number, clean) if room > 0 else None
        room -= sum(map(len, told.lines)) if told is not None else 0
        if told is None or room < 0:
            told = Difference(one.path, [], "this file has no room for it; the viewer shows it")
        found[f"{one.seq}/{one.number}"] = told
    return found


def _slim(found: Detail) -> Detail:
    """Without what would only make the file large: the agent's own transcript, and of each request the
    messages that the one before had, too."""
    texts: list[Text] = []
    told = [one for one in found.texts if re.fullmatch(r"m\d+", one.name)]
    kept = {one.name for one in told[-MESSAGES:]} | {one.name for one in told if one.fresh}
    for one in found.texts:
        if one.name == "lines" or (one in told and one.name != "m0" and one.name not in kept):
            continue
        texts.append(msgspec.structs.replace(one, text=one.text[:MOST_TEXT]))
    raw = [(seq, _shortened(text)) for seq, text in found.raw]
    return msgspec.structs.replace(found, texts=texts, raw=raw)


def _shortened(raw: str) -> str:
    """The event without long texts, which the page shows above it."""
    return re.sub(r'("(?:text|data)": "(?:[^"\\]|\\.){200})(?:[^"\\]|\\.)+"', r'\1…"', raw)


def _silent(one: Row) -> Row:
    """A row without words of a person, a model or a tool."""
    spoken = one.kind in ("message", "steer", "tool", "turn", "settled", "permission", "files")
    return msgspec.structs.replace(one, text="") if spoken else one


def page(data: Data) -> str:
    """The file, from what it shows."""
    script, style = _script(), shipped("view.css").decode()
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    # "<" of any kind must not end the element that the data is in.
    told = msgspec.json.encode(data).decode().replace("<", "\\u003c").replace("\u2028", "\\u2028")
    told = told.replace("\u2029", "\\u2029")
    icon = base64.b64encode(shipped("icon.svg")).decode()
    frame = shipped("index.html").decode()
    head, body = frame.split("</head>", 1)
    head = "\n".join(line for line in head.splitlines() if "static/" not in line)
    return "".join(
        (
            head.replace(
                "<meta charset",
                f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<meta charset',
            ),
            f'\n<link rel="icon" href="data:image/svg+xml;base64,{icon}">\n<style>{style}</style>\n</head>',
            body.replace("</body>", "", 1).replace("</html>", "", 1).rstrip(),
            f'\n<script type="application/json" id="data">{told}</script>\n',
            f'<script type="module">{script}</script>\n</body>\n</html>\n',
        )
    )


def _script() -> str:
    """All modules as one, those first that others need."""
    done: dict[str, str] = {}

    def take(name: str) -> None:
        if name in done:
            return
        source = shipped(name).decode()
        for needed in _IMPORT.findall(source):
            take(needed)
        done[name] = _EXPORT.sub("", _IMPORT.sub("", source))

    take("app.js")
    return "\n".join(done.values())


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
