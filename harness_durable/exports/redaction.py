"""What must not be seen is taken out of texts: credentials always, what the caller's patterns match, and
with ``content=False`` everything that a person, a model, a harness or a tool said."""

from __future__ import annotations

import re
from collections.abc import Sequence

from harness_durable.errors import BadInput
from harness_durable.exports.views import views

MARK = "[redacted]"
LEFT_OUT = "[left out]"
"""In the place of words, with ``content=False``."""

CREDENTIALS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("sk-",), r"\bsk-[A-Za-z0-9_-]{16,}"),  # Anthropic, OpenAI, OpenRouter and others
    (("_live_", "_test_"), r"\b(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}"),  # Stripe
    (("aiza",), r"\bAIza[A-Za-z0-9_-]{30,}"),  # Google
    (("ya29.",), r"\bya29\.[A-Za-z0-9_-]{20,}"),
    (("akia", "asia"), r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),  # AWS
    (
        ("aws",),
        r"(?i:aws_?(?:secret_?access_?key|session_?token))[\"'\s]{0,4}[=:][\"'\s]{0,4}[A-Za-z0-9/+=]{30,}",
    ),
    (("gh", "github_pat_"), r"\b(?:gh[pousr]_|github_pat_)[A-Za-z0-9_]{20,}"),
    (("glpat-",), r"\bglpat-[A-Za-z0-9_.-]{16,}"),
    (("xox", "xapp-"), r"\b(?:xox[a-z]|xapp)-[A-Za-z0-9-]{10,}"),  # Slack
    (("hf_", "npm_", "gsk_", "r8_"), r"\b(?:hf|npm|gsk|r8)_[A-Za-z0-9]{20,}"),
    (("pypi-", "xai-"), r"\b(?:pypi|xai)-[A-Za-z0-9_-]{16,}"),
    (("sg.",), r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),  # SendGrid
    (("eyj",), r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*"),  # a JSON web token
    (("bearer ",), r"(?i:\bbearer )[A-Za-z0-9._~+/=-]{12,}"),
    (
        ("key",),
        r"(?i:\b(?:x-api-key|x-goog-api-key|api[_-]?key)\b)[\"'\s]{0,4}[=:][\"'\s]{0,4}[A-Za-z0-9._~+/=-]{12,}",
    ),
    (("://",), r"(?<=://)[^\s:/@\"']{0,100}:[^\s/@\"']{1,200}(?=@)"),  # the user and password of a URL
    (
        ("private key",),
        r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----"
        r"(?s:.{0,20000}?-----END [A-Z ]{0,30}PRIVATE KEY-----|[\w+/=\s:,.-]{0,20000})",
    ),
)
"""Shapes that nothing but a credential has, each with what a text must hold (in lower case) to be worth the
search. The provider's own key is not their business: the gateway keeps it out of the log to begin with."""


_CREDENTIALS = [(hints, re.compile(shape)) for hints, shape in CREDENTIALS]


class Redaction:
    """How one export is redacted. ``patterns`` are regular expressions; raises ``BadInput`` for what is
    none. A name (an id, a path) that holds a match gets a numbered mark, the same wherever it stands, so that
    two of them stay two."""

    def __init__(self, patterns: Sequence[str] = (), *, content: bool = True) -> None:
        self.content = content
        self._numbers: dict[str, int] = {}
        self._patterns: list[tuple[tuple[str, ...], re.Pattern[str]]] = list(_CREDENTIALS)
        for pattern in patterns:
            try:
                self._patterns.append((("",), re.compile(pattern)))
            except re.error as error:
                raise BadInput(
                    f"--redact {pattern!r} is no regular expression ({error}); put a backslash before what "
                    "is meant literally"
                ) from None

    def text(self, text: str) -> str:
        """The text with a mark in the place of each match, also of those behind escapes or in pieces."""
        spans = sorted(set(self._found(text)))
        if not spans:
            return text
        pieces: list[str] = []
        done = 0
        for start, end, first in spans:
            if end <= done:
                continue
            touches = bool(pieces) and start < done
            pieces += (text[done : max(start, done)], "" if touches or not first else MARK)
            done = end
        return "".join((*pieces, text[done:]))

    def bytes(self, raw: bytes) -> bytes:
        """The same for bytes, which need not be UTF-8."""
        return self.text(raw.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def name(self, text: str) -> str:
        """An id, a name or a path."""
        spans = sorted({(start, end) for start, end, _ in self._found(text)})
        pieces: list[str] = []
        done = 0
        for start, end in spans:
            if end > done:
                number = self._numbers.setdefault(text[start:end], len(self._numbers) + 1)
                pieces += (text[done : max(start, done)], f"[redacted {number}]")
                done = end
        return "".join((*pieces, text[done:]))

    def words(self, text: str) -> str:
        """Words in a field of the log itself, such as a reason."""
        if not self.content:
            return LEFT_OUT if text else ""
        return self.text(text)

    def _found(self, text: str) -> list[tuple[int, int, bool]]:
        """Each match as the stretches that it stands on; the first of them gets the mark."""
        spans: list[tuple[int, int, bool]] = []
        for view in views(text):
            lower = view.text.lower()
            for hints, pattern in self._patterns:
                if not any(hint in lower for hint in hints):
                    continue
                for match in pattern.finditer(view.text):
                    if match.end() > match.start():
                        origin = enumerate(view.origin(*match.span()))
                        spans += [(start, end, place == 0) for place, (start, end) in origin]
        return spans
