// What happened, in a few sentences, for who has never seen a trace.

import { clock, many, span } from "./text.js";
import { isCrash, isUnknown } from "./trace.js";

/** Pieces of text; those with `item` lead to it. */
export function verdict(trace, upto) {
  const rows = [...trace.at(upto)];
  const crashes = rows.filter(isCrash);
  const unknown = rows.filter(isUnknown);
  const replays = rows.filter((row) => row.kind === "replay");
  const lives = rows.filter((row) => row.kind === "life");
  const told = [];
  if (!crashes.length) told.push({ text: lives.length ? `No crash${upto === Infinity ? "" : " so far"}.` : "The agent has not started yet." });
  else {
    told.push({ text: crashes.length === 1 ? "The agent died once: " : `The agent died ${crashes.length} times. The last time: ` });
    const end = crashes[crashes.length - 1];
    const during = end.badges.length ? ` ${end.badges.join(", ")}` : "";
    told.push({ text: `life ${end.life}, ${end.text}, after ${clock(end.begun)}${during}`, item: end.item, cls: "bad" });
    const next = lives.find((row) => row.life > end.life);
    told.push({ text: next ? `; life ${next.life} took over ${span(next.begun - end.begun)} later.` : "; nobody has taken over yet." });
  }
  if (unknown.length) {
    told.push({ text: ` ${unknown.length === 1 ? "One outcome is unknown" : `${unknown.length} outcomes are unknown`}: ` });
    told.push({ text: `▲ ${unknown[unknown.length - 1].title}`, item: unknown[unknown.length - 1].item, cls: "warn" });
    told.push({ text: unknown.length > 1 ? " and others; the model was told so." : "; the model was told so." });
  } else if (crashes.length) told.push({ text: " No outcome was lost." });
  if (replays.length) told.push({ text: ` ${many(replays.length, "model answer")} came from the log, not paid again.` });
  const turn = rows.findLast((row) => row.kind === "turn");
  const later = turn && rows.findLast((row) => row.kind === "message" && row.item > turn.item);
  if (turn && !later) {
    const how = { completed: "The turn was completed", failed: "The turn failed", cancelled: "The turn was cancelled", needs_input: "It waits for a person" };
    told.push({ text: " " }, { text: `${turn.mark} ${how[turn.state]}.`, item: turn.item, cls: turn.tone });
  }
  return told;
}
