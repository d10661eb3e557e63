// What happened, in a few sentences, for who has never seen a trace.

import { clock, many, span } from "./text.js";
import { isCrash, isUnknown } from "./trace.js";

const NAMED = 3; // unknown outcomes that are named
const HOW = { completed: "The turn was completed", failed: "The turn failed", cancelled: "The turn was cancelled", needs_input: "It waits for a person" };

/** Pieces of text; those with `item` lead to it. */
export function verdict(trace, upto) {
  const rows = [...trace.at(upto)];
  const kind = (name) => rows.filter((row) => row.kind === name);
  const lives = kind("life");
  const crashes = rows.filter(isCrash);
  const losses = kind("attached");
  const unknown = rows.filter(isUnknown);
  const told = [];
  if (!crashes.length && !losses.length) told.push({ text: lives.length ? `No crash${upto === Infinity ? "" : " so far"}.` : "The agent has not started yet." });
  if (crashes.length) told.push(...died(crashes, lives));
  if (losses.length) told.push(...workers(losses, told.length ? " " : ""));
  if (unknown.length) told.push(...unknowns(unknown, rows));
  else if (told.length > 1) told.push({ text: " The outcome of every tool call is known." });
  for (const row of kind("settled").filter((one) => one.state !== "unknown").slice(-1)) told.push({ text: " " }, { text: `${row.mark} ${row.title}`, item: row.item, cls: row.tone }, { text: "." });
  const again = kind("tool").filter((row) => row.badges.some((badge) => /^run \d+, same id$/.test(badge)));
  if (again.length) told.push({ text: ` ${many(again.length, "call")} that may be repeated ran again: ` }, { text: again.at(-1).title, item: again.at(-1).item }, { text: "." });
  const lost = kind("model").filter((row) => row.state === "lost");
  if (lost.length) told.push({ text: ` ${many(lost.length, "model answer")} ${lost.length === 1 ? "was" : "were"} lost on the way, and asked for again.` });
  const replays = kind("replay");
  if (replays.length) told.push({ text: ` ${many(replays.length, "model answer")} came from the log, not paid again.` });
  const turn = rows.findLast((row) => row.kind === "turn");
  const later = turn && rows.findLast((row) => row.kind === "message" && row.item > turn.item);
  if (turn && !later) {
    const why = ["needs_input", "failed"].includes(turn.state) && turn.text ? `: ${turn.text}` : "";
    told.push({ text: " " }, { text: `${turn.mark} ${HOW[turn.state]}${why}.`, item: turn.item, cls: turn.tone });
  }
  const asked = kind("permission").findLast((row) => row.state === "asked");
  if (asked && !(turn && turn.item > asked.item)) told.push({ text: " It asks a person: " }, { text: `${asked.mark} ${asked.title} ${asked.text}`, item: asked.item, cls: "person" });
  const moved = kind("session").findLast((row) => row.state === "moved");
  if (moved) told.push({ text: " The session was moved: " }, { text: moved.text, item: moved.item }, { text: "." });
  return told;
}

function during(row) {
  return row.badges.length ? ` ${row.badges.join(", ")}` : "";
}

function died(crashes, lives) {
  const end = crashes.at(-1);
  const next = lives.find((row) => row.life > end.life);
  return [
    { text: crashes.length === 1 ? "The agent died once: " : `The agent died ${crashes.length} times. The last time: ` },
    { text: `life ${end.life}, ${end.text}, after ${clock(end.begun)}${during(end)}`, item: end.item, cls: "bad" },
    { text: next ? `; life ${next.life} took over ${span(next.begun - end.begun)} later.` : "; nobody has taken over yet." },
  ];
}

/** Deaths of workers that the agents did not notice. */
function workers(losses, before) {
  const loss = losses.at(-1);
  return [
    { text: `${before}${losses.length === 1 ? "The worker was lost once, and the agent lived on: " : `The worker was lost ${losses.length} times, and the agent lived on. The last time: `}` },
    { text: `in life ${loss.life}, after ${clock(loss.begun)}${during(loss)}`, item: loss.item, cls: "bad" },
    { text: `; another one came ${span(loss.over - loss.begun)} later.` },
  ];
}

/** Which outcomes are unknown, and what became of that. */
function unknowns(unknown, rows) {
  const told = [{ text: unknown.length === 1 ? " One outcome is unknown: " : ` ${unknown.length} outcomes are unknown: ` }];
  for (const row of unknown.slice(-NAMED)) told.push(...(told.length > 1 ? [{ text: ", " }] : []), { text: `▲ ${row.title}`, item: row.item, cls: "warn" });
  if (unknown.length > NAMED) told.push({ text: " and others" });
  told.push({ text: "; the model was told so" });
  if (unknown.length > 1) return [...told, { text: "." }];
  const { item, title, text } = unknown[0];
  const repeats = rows.filter((row) => row.kind === "tool" && row.item > item && row.title === title && text && row.text === text);
  const refused = repeats.find((row) => row.state === "refused");
  const ran = repeats.find((row) => row.begun && row.state !== "refused");
  if (refused) told.push({ text: ", and " }, { text: "a repeat was refused once", item: refused.item, cls: "warn" });
  if (ran) told.push({ text: ", then it chose to " }, { text: `run it again: ${ran.mark} ${ran.state}`, item: ran.item, cls: ran.tone });
  else if (!refused && text && rows.some((row) => row.kind === "turn" && row.item > item)) told.push({ text: " and did not repeat it" });
  return [...told, { text: "." }];
}
