// Keys and signs.

import { el } from "./text.js";

const KEYS = [
  ["j / k", "next / previous line"],
  ["J / K", "next / previous prompt"],
  ["] / [", "next / previous crash"],
  ["/", "find; Enter goes on to the next place, Shift+Enter back"],
  ["f", "follow: stay at the newest event"],
  ["p", "play or pause the replay"],
  ["e", "back to the end"],
  ["r", "raw events of the chosen line"],
  ["o", "list everything again, not only one life or tool"],
  ["Escape", "leave a field, close this"],
];
const SIGNS = [
  ["❯", "somebody said it"],
  ["●", "the model answered"],
  ["⟲", "the model's answer came from the log; nothing was paid"],
  ["▸ ✓ ✗", "a tool call was released (it may run), completed, failed"],
  ["▲ UNKNOWN", "it was released, and whether it happened was never recorded"],
  ["⊘", "refused once, because it repeats an unknown call"],
  ["┏ ┗", "a life of the agent, one run of its process, begins and ends"],
  ["╳ crash", "a life died before its turn was settled"],
  ["┣ worker lost", "the worker of a life died and another came; the agent lived on"],
  ["↻", "the same turn goes on in the next life"],
];

export function help() {
  const list = (pairs) => el("dl", { cls: "facts" }, ...pairs.flatMap(([key, text]) => [el("dt", { text: key }), el("dd", { text })]));
  return [
    el("h2", { text: "Keys" }),
    list(KEYS),
    el("h2", { text: "Signs" }),
    list(SIGNS),
    el("form", { method: "dialog" }, el("button", { text: "Close" })),
  ];
}
