// Our part inside Pi. It asks before a tool runs, tells what came of it, and mirrors the session file.
//
// Every question is an input dialog of Pi's RPC mode: a line on standard output, whose answer comes on standard
// input. Nothing here times out, and without an answer nothing goes on: a call is not run, and a result that
// could not be recorded ends the process.

import { readFileSync } from "node:fs";
import * as pi from "@earendil-works/pi-coding-agent";

const told = JSON.parse(readFileSync(`${process.env.PI_CODING_AGENT_DIR}/durable.json`, "utf8"));
const builtIn = {
  bash: pi.createBashToolDefinition,
  edit: pi.createEditToolDefinition,
  write: pi.createWriteToolDefinition,
};
const custom = new Set(told.tools.map((tool) => tool.name));
const mark = new RegExp(`^${told.mark}([0-9a-f-]+)>\n`);

let mirrored = told.entries; // how many entries of the session the log has
const allowed = new Set(); // calls of built-in tools that may run
const ended = new Set(); // calls whose outcome was told
const recorded = new Map(); // results of calls that ran in an earlier life

async function ask(ctx, kind, about, signal) {
  const entries = ctx.sessionManager.getEntries();
  const lines = entries.slice(mirrored).map((entry) => JSON.stringify(entry));
  mirrored = entries.length;
  const question = JSON.stringify({ kind, lines, ...about });
  const answer = await ctx.ui.input(told.title, question, { signal });
  return answer === undefined ? undefined : JSON.parse(answer);
}

function text(words) {
  return [{ type: "text", text: words }];
}

async function beforeCall(event, ctx) {
  const answer = await ask(ctx, "call", { call: event.toolCallId, tool: event.toolName }, ctx.signal);
  if (answer?.run) {
    if (!custom.has(event.toolName)) allowed.add(event.toolCallId);
    return undefined;
  }
  if (answer?.result) recorded.set(event.toolCallId, answer.result);
  return { block: true, reason: answer?.reason ?? told.notRun };
}

async function afterCall(event, ctx) {
  ended.add(event.toolCallId);
  if (custom.has(event.toolName)) return undefined; // it ran in the worker, which has recorded its result
  const { toolCallId: call, toolName: tool, isError, content, details, structuredContent } = event;
  try {
    const outcome = JSON.stringify({ content, details, structuredContent });
    const answer = await ask(ctx, "result", { call, tool, isError, content, outcome });
    return answer.result;
  } catch {
    process.kill(process.pid, "SIGKILL");
  }
}

// Before a message is written down: a user's message loses its mark, which becomes a member of its own, and a
// call that did not run, or was stopped before it told its outcome, gets the result that the log has.
function asWritten(message, ctx) {
  if (message.role === "user") {
    const [first, ...others] = Array.isArray(message.content) ? message.content : [];
    const found = mark.exec(first?.text ?? "");
    if (!found) return undefined;
    const said = { ...first, text: first.text.slice(found[0].length) };
    return { ...message, content: [said, ...others], durable: found[1] };
  }
  const call = message.role === "toolResult" ? message.toolCallId : undefined;
  if (call === undefined || ended.has(call)) return undefined;
  if (recorded.has(call)) return { ...message, ...recorded.get(call) };
  if (!ctx.signal?.aborted) return undefined;
  return { ...message, content: text(allowed.has(call) ? told.cut : told.notRun) };
}

function customTool(tool) {
  return {
    ...tool,
    label: tool.name,
    async execute(call, input, _signal, _update, ctx) {
      const about = { call, tool: tool.name, input: JSON.stringify(input) };
      const answer = await ask(ctx, "custom", about);
      if (answer === undefined) process.kill(process.pid, "SIGKILL");
      return { content: text(answer.text), isError: answer.isError };
    },
  };
}

export default function durable(api) {
  api.on("before_provider_request", async (_, ctx) => void (await ask(ctx, "request", {}, ctx.signal)));
  api.on("tool_call", beforeCall);
  api.on("tool_result", afterCall);
  api.on("message_end", ({ message }, ctx) => {
    const changed = asWritten(message, ctx);
    return changed && { message: changed };
  });
  api.on("agent_settled", async (_, ctx) => void (await ask(ctx, "settled", {})));
  api.on("context", ({ messages }) => ({
    messages: messages.filter((message) => message.customType !== told.command),
  }));
  for (const name of told.sequential) {
    api.registerTool({ ...builtIn[name](process.cwd()), executionMode: "sequential" });
  }
  for (const tool of told.tools) api.registerTool(customTool(tool));
  // The last, since its being there tells that all of this is in place.
  api.registerCommand(told.command, {
    description: "Go on with the turn in its middle.",
    handler: async () => {
      api.sendMessage({ customType: told.command, content: [], display: false }, { triggerTurn: true });
    },
  });
}
