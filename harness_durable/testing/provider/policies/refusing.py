"""A provider that does not like some pictures, in the words of the real API.

Written without the gateway's own search for media on purpose, so that the two cannot share a mistake."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import cast

from msgspec import Struct

from harness_durable.testing.provider.messages import Request
from harness_durable.testing.provider.reply import HttpError, Reply

TOO_LARGE = "image exceeds 5 MB maximum: 6500712 bytes > 5242880 bytes"


class RefuseMedia(Struct, frozen=True):
    """Refuses each request that holds a file with one of these SHA-256 digests (none given: any file in
    base64); all others go to ``then``.

    ``message`` is what the API says of it; ``{place}`` in it becomes the first such block's place, such as
    ``messages.2.content.0.tool_result.content.0.image.source.base64``.
    """

    then: Callable[[Request], Reply]
    digests: tuple[str, ...] = ()
    message: str = f"{{place}}: {TOO_LARGE}"
    status: int = 400

    def __call__(self, request: Request) -> Reply:
        disliked = [place for place, digest in files(request) if not self.digests or digest in self.digests]
        if not disliked:
            return self.then(request)
        message = self.message.replace("{place}", disliked[0])
        return Reply(faults=(HttpError(self.status, message=message),))


def files(request: Request) -> list[tuple[str, str]]:
    """The place and the SHA-256 digest of each file that the conversation holds in base64."""
    name = "input" if "input" in request.body else "messages"
    items = cast(list[Mapping[str, object]], request.body[name])
    return [
        found
        for at, item in enumerate(items)
        for found in (
            *_files(item.get("content"), f"{name}.{at}.content"),
            *_data_urls(item.get("content"), f"{name}[{at}].content"),
            *_data_urls(item.get("output"), f"{name}[{at}].output"),
        )
    ]


def _files(content: object, place: str) -> Iterator[tuple[str, str]]:
    if not isinstance(content, list):
        return
    for at, block in enumerate(cast(list[Mapping[str, object]], content)):
        here = f"{place}.{at}.{block.get('type')}"
        yield from _files(block.get("content"), f"{here}.content")
        source = block.get("source")
        if isinstance(source, Mapping):
            known = cast(Mapping[str, object], source)
            if known.get("type") == "base64":
                data = base64.b64decode(str(known.get("data")))
                yield f"{here}.source.base64", hashlib.sha256(data).hexdigest()


def _data_urls(content: object, place: str) -> Iterator[tuple[str, str]]:
    """As the two APIs of OpenAI hold files: a data URL in a part, or in an object within it."""
    if not isinstance(content, list):
        return
    for at, part in enumerate(cast(list[Mapping[str, object]], content)):
        for member, value in part.items():
            inner = cast(Mapping[str, object], value) if isinstance(value, Mapping) else {member: value}
            for url in map(str, inner.values()):
                head, found, data = url.partition(";base64,")
                if found and head.startswith("data:"):
                    digest = hashlib.sha256(base64.b64decode(data)).hexdigest()
                    yield f"{place}[{at}].{member}", digest
