"""Results of built-in tools, as text for the log and for the model. Pure.

The harness tells us the structured form; what it makes of that for the model it does not tell. Here is the
best rendering; where the harness's own words are known (in its transcript, in its next request), those are
used instead."""

from __future__ import annotations

from typing import cast

from ..common.shapes import Json, encode, mapping, text_of, word


def render(tool: str, response: object) -> str:
    """What the model sees of a built-in tool's structured result."""
    if isinstance(response, str):
        return response
    form = mapping(response)
    match tool:
        case "Bash":
            parts = [word(form.get("stdout")).rstrip("\n"), word(form.get("stderr")).strip()]
            return "\n".join(part for part in parts if part) or "(Bash completed with no output)"
        case "Read":
            return _numbered(mapping(form.get("file"))) or _whole(response)
        case "Write" | "Edit":
            return _written(tool, form)
        case "Glob" | "Grep":
            return _found(form) or _whole(response)
        case _:
            return text_of(response) or text_of(form.get("content")) or _whole(response)


def _whole(response: object) -> str:
    return encode(response).decode("utf-8", "replace")


def _numbered(file: Json) -> str:
    content, start = word(file.get("content")), file.get("startLine")
    first = start if isinstance(start, int) else 1
    return (
        "\n".join(f"{first + place}\t{line}" for place, line in enumerate(content.split("\n")))
        if content
        else ""
    )


def _written(tool: str, form: Json) -> str:
    path = word(form.get("filePath"))
    if tool == "Write" and form.get("type") == "create":
        return f"File created successfully at: {path}"
    return f"The file {path} has been updated successfully."


def _found(form: Json) -> str:
    if word(form.get("content")):
        return word(form.get("content"))
    names = form.get("filenames")
    if not isinstance(names, list):
        return ""
    return "\n".join(word(name) for name in cast(list[object], names)) or "No files found"
