"""Responses of the Messages API: what counts as complete, what a tool call is, and both forms of an answer."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness_durable.events import Usage
from harness_durable.gateway import wire
from harness_durable.gateway.wire import Parsed, ToolUse
from harness_durable.testing.provider import Reply, Style, Text, Thinking, encode_reply
from tests.unit.test_gateway_sse import cut
