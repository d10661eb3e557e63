"""What a span is called in the semantic conventions for generative AI, and in our own words beside them.

Our own names begin with ``harness_durable.``: the conventions have none yet for lives, replay policies and
outcomes that are unknown. Content is on the span that it belongs to, and only where the material has it."""

from __future__ import annotations

import json
from typing import Any

from harness_durable import events as ev
from harness_durable.exports.material import Material, shown
from harness_durable.exports.said import said
from harness_durable.exports.spans import Span
from harness_durable.state import ModelCall, ToolCall

Values = dict[str, Any]

PROVIDERS = {"anthropic": "anthropic", "openai-chat": "openai", "openai-responses": "openai"}
"""Of a wire; behind it may be another provider that speaks the same."""


def attributes(material: Material, span: Span) -> Values:
    """All that is known of a span. ``None`` is left out by who encodes them."""
    agent = material.state.agent
    common: Values = {
        "gen_ai.conversation.id": material.session,
        "harness_durable.seq": span.seq,
        "harness_durable.kind": span.kind,
        "harness_durable.outcome": span.word or None,
        "error.type": span.word if span.status in ("failed", "lost") else None,
        "harness_durable.open": True if span.status == "open" else None,
    }
    match span.kind:
        case "session":
            about: Values = {"gen_ai.agent.name": agent.adapter} if agent is not None else {}
            return common | about | {"harness_durable.title": material.state.title or None}
        case "turn":
            return common | _turn(material, span)
        case "life":
            return common | _life(material, span)
        case "model":
            return common | _model(material, material.state.model_calls[span.id])
        case "tool":
            return common | _tool(material, material.state.tool_calls[span.id], span)


def _turn(material: Material, span: Span) -> Values:
    turn, agent = material.state.turns[span.id], material.state.agent
    asked = material.state.messages.get(span.id)
    text, end = shown(asked.text if asked is not None else None), None
    if turn.ended_seq and isinstance(ended := material.event(turn.ended_seq), ev.TurnCompleted):
        end = shown(ended.text)
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": agent.adapter if agent is not None else None,
        "gen_ai.request.model": agent.model if agent is not None else None,
        "gen_ai.input.messages": _messages("user", text),
        "gen_ai.output.messages": _messages("assistant", end, finish_reason="stop"),
        "harness_durable.turn": turn.id,
        "harness_durable.lives": len(turn.lives),
        "harness_durable.told": list(turn.told) or None,
    }


def _life(material: Material, span: Span) -> Values:
    life = material.state.lives[span.id]
    return {
        "harness_durable.life": life.id,
        "harness_durable.life.number": life.number,
        "harness_durable.life.rung": life.rung,
        "harness_durable.life.sandbox": life.sandbox,
        "harness_durable.life.workers": list(life.workers),
        "harness_durable.life.exit_code": life.code,
        "harness_durable.harness_version": life.harness_version,
        "host.name": life.host,
    }


def _model(material: Material, call: ModelCall) -> Values:
    usage, answered = call.usage, call.status == "completed"
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": PROVIDERS.get(call.wire, call.wire),
        "gen_ai.request.model": call.model,
        "gen_ai.response.id": call.response_id or None,
        "gen_ai.response.finish_reasons": [call.stop_reason] if call.stop_reason else None,
        "gen_ai.usage.input_tokens": usage.input + usage.cache_read + usage.cache_write if answered else None,
        "gen_ai.usage.output_tokens": usage.output if answered else None,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read if answered else None,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write if answered else None,
        "http.response.status_code": call.http_status,
        "url.path": call.path.partition("?")[0],
        "harness_durable.model_call": call.id,
        "harness_durable.agent": call.agent,
        "harness_durable.replays": len(call.replays),
        "harness_durable.request.base": call.base,
        **(_dialogue(material, call) if material.content else {}),
    }


def _dialogue(material: Material, call: ModelCall) -> Values:
    """What was new in the request (what went before is on the call that ``base`` names), and the answer."""
    asked = material.event(call.requested_seq)
    parts = [shown(part) or "" for part in asked.parts] if isinstance(asked, ev.ModelRequested) else []
    if not call.completed_seq:
        return {"harness_durable.request.parts": parts}
    done = material.event(call.completed_seq)
    body = done.body if isinstance(done, ev.ModelCompleted) else None
    text = said(call.wire, body.inline if body is not None and body.inline else b"")
    answer: list[Values] = [{"type": "text", "content": text}] if text else []
    for name in call.tool_calls:
        if name in material.state.tool_calls:
            tool = material.state.tool_calls[name]
            given = {"id": name, "name": tool.name, "arguments": _arguments(material, tool)}
            answer.append({"type": "tool_call", **given})
    message = {"role": "assistant", "parts": answer, "finish_reason": call.stop_reason}
    return {
        "harness_durable.request.parts": parts,
        "gen_ai.output.messages": json.dumps([message], ensure_ascii=False),
    }


def _tool(material: Material, call: ToolCall, span: Span) -> Values:
    result: str | None = None
    if call.outcome_seq and span.word == call.outcome:
        result = shown(getattr(material.event(call.outcome_seq), "result", None))
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.name,
        "gen_ai.tool.call.id": call.id,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.arguments": _arguments(material, call) if material.content else None,
        "gen_ai.tool.call.result": result,
        "harness_durable.tool.origin": call.origin,
        "harness_durable.tool.policy": call.policy,
        "harness_durable.tool.run": span.run,
        "harness_durable.tool.repeats": call.repeats,
        "harness_durable.tool.source": call.source,
        "harness_durable.model_call": call.model_call,
        "harness_durable.agent": call.agent,
    }


def _arguments(material: Material, call: ToolCall) -> str | None:
    asked = material.event(call.requested_seq)
    return shown(asked.input) if isinstance(asked, ev.ToolRequested) else None


def _messages(role: str, text: str | None, **more: str) -> str | None:
    if text is None:
        return None
    message = {"role": role, "parts": [{"type": "text", "content": text}], **more}
    return json.dumps([message], ensure_ascii=False)
