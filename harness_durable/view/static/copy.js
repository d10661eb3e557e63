// What is known of an item, as Markdown to paste elsewhere.

import { clock, day, visible } from "./text.js";

/** In a fence that what was said cannot leave. */
function fenced(text) {
  const longest = Math.max(0, ...[...text.matchAll(/`+/g)].map((found) => found[0].length));
  const fence = "`".repeat(Math.max(3, longest + 1));
  return `${fence}text\n${visible(text)}\n${fence}`;
}

/** On one line, and without a meaning in Markdown. */
function plain(text) {
  return visible(String(text)).replace(/[\n\t]+/g, " ").replace(/[\\`*_{}[\]<>#!|~&]/g, "\\$&");
}

/** `row` and `found` as the details show them: only what was known at `upto`. */
export function asMarkdown(session, row, word, found, upto) {
  const known = (one) => (one.seq ?? one[0]) <= upto;
  const facts = found.facts.filter(known).map((fact) => (Array.isArray(fact) ? fact : Object.values(fact)));
  const parts = [`**${row.mark} ${plain(row.title)}**${word ? ` ${plain(word)}` : ""}${row.badges.map((badge) => ` · ${plain(badge)}`).join("")}`];
  const lines = [["session", `${session}, event ${row.seq}`], ["when", `${day(row.time)} ${clock(row.time, true)}`], ...(row.life ? [["life", row.life]] : []), ...facts.map(([, label, value]) => [label, value])];
  parts.push(lines.map(([label, value]) => `- ${plain(label)}: ${plain(value)}`).join("\n"));
  const changes = (found.changes || []).filter(known).map((one) => `- ${plain(one.op)}: ${plain(one.path)}`);
  if (changes.length) parts.push(changes.join("\n"));
  for (const text of found.texts.filter(known)) {
    if (/^m\d+$/.test(text.name) && !text.fresh) continue;
    parts.push(`${plain(text.label)}:`);
    if (text.text) parts.push(fenced(text.text));
  }
  return `${parts.join("\n\n")}\n`;
}

/** To the clipboard; false if the browser does not let us. */
export async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
