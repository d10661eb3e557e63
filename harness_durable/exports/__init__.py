"""A session in the formats of other people's tools. Nothing here is read back: see ``transfer`` for that.

``gather`` reads a log once, resolves its bodies and takes out what must not be seen; everything behind it is
pure and gets only that. So no format can forget to redact, and one that is added need not think of it."""

from __future__ import annotations

from harness_durable.exports.jsonl import jsonl
from harness_durable.exports.markdown import markdown
from harness_durable.exports.material import Material, RedactedReader, gather
from harness_durable.exports.otlp import otlp
from harness_durable.exports.perfetto import perfetto
from harness_durable.exports.redaction import Redaction

__all__ = ("Material", "RedactedReader", "Redaction", "gather", "jsonl", "markdown", "otlp", "perfetto")
