// A long list of which only the rows that can be seen are on the page. Rows have one of a few heights.

import { el, visible, clock, day } from "./text.js";

const LOW = 28;
const MIDDLE = 50;
const TALL = 72;
const SPARE = 6;

const WORDS = {
  "tool requested": "asked for",
  "tool released": "running",
  "tool not_started": "not started",
  "tool unknown": "UNKNOWN",
  "tool refused": "refused once",
  "model requested": "asked",
  "model completed": "answered",
  "settled unknown": "UNKNOWN",
  "end died": "crash",
  "end stopped": "planned",
  "end gave_up": "gave up",
  "end settled": "",
  "life running": "",
  "life ended": "",
  "replay completed": "from the log",
  "attached attached": "worker lost",
  "resumed resumed": "resumed",
  "turn needs_input": "needs you",
  "message delivered": "",
  "message started": "",
  "session created": "",
  "session closed": "",
  "session forked": "",
  "session moved": "",
  "files committed": "",
  "files skipped": "not saved",
};

/** What became of it, as a word for people. */
export function wordOf(row) {
  if (row.kind === "message" && row.state === "queued" && row.begun) return `waits until ${day(row.begun)} ${clock(row.begun)}`;
  return WORDS[`${row.kind} ${row.state}`] ?? row.state.replace("_", " ");
}

function heightOf(row) {
  if (["message", "steer", "turn"].includes(row.kind)) return row.text.length > 100 ? TALL : MIDDLE;
  if (row.kind === "attached" || (row.kind === "end" && row.state !== "settled")) return MIDDLE;
  return row.kind === "settled" || row.kind === "resumed" ? MIDDLE : LOW;
}

export class List {
  /** `choose(row)` is called for a click; `seen(rows)` with those that came into view. */
  constructor(box, pad, { choose, seen }) {
    Object.assign(this, { box, pad, choose, seen });
    this.entries = []; // rows to show
    this.tops = [0]; // where each begins, and where the last one ends
    this.chosen = 0;
    this.said = new Map();
    this.pool = [];
    this.asked = false;
    box.addEventListener("scroll", () => this.paint());
    new ResizeObserver(() => this.paint()).observe(box);
    pad.addEventListener("click", (event) => {
      const at = this.pool.find((one) => one.box.contains(event.target))?.at;
      if (at !== undefined && this.entries[at]) choose(this.entries[at]);
    });
  }

  get atEnd() {
    return this.box.scrollTop + this.box.clientHeight >= this.box.scrollHeight - 40;
  }

  /** Show these rows. What stood at the top stays there, whatever was put before it. */
  show(entries, { keyOf, timeOf = (row) => row.time, end = false }) {
    const first = this.#placeAt(this.box.scrollTop);
    const anchor = this.entries[first];
    const inside = this.box.scrollTop - (this.tops[first] || 0);
    Object.assign(this, { keyOf, timeOf });
    this.entries = entries;
    this.tops = new Array(entries.length + 1);
    let top = 0;
    for (let at = 0; at < entries.length; at += 1) {
      this.tops[at] = top;
      top += heightOf(entries[at]);
    }
    this.tops[entries.length] = top;
    this.pad.style.height = `${top}px`;
    this.box.setAttribute("aria-setsize", entries.length);
    if (end) this.box.scrollTop = top;
    else if (anchor) {
      const at = this.#placeOf(keyOf(anchor));
      this.box.scrollTop = Math.max(0, (this.tops[at] ?? 0) + inside);
    }
    this.paint();
  }

  /** Place of the row with this key, or of the last one before it. */
  #placeOf(key) {
    let low = 0;
    let high = this.entries.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.keyOf(this.entries[middle]) < key) low = middle + 1;
      else high = middle;
    }
    return Math.min(low, this.entries.length - 1);
  }

  #placeAt(top) {
    let low = 0;
    let high = this.tops.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.tops[middle] <= top) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  indexOf(key) {
    const at = this.entries.length ? this.#placeOf(key) : -1;
    return at >= 0 && this.keyOf(this.entries[at]) === key ? at : -1;
  }

  /** Bring a row into view, if it is not. */
  reveal(key) {
    const at = this.indexOf(key);
    if (at < 0) return;
    const [top, bottom] = [this.tops[at], this.tops[at + 1]];
    const { scrollTop, clientHeight } = this.box;
    if (top < scrollTop + LOW || bottom > scrollTop + clientHeight - LOW) {
      this.box.scrollTop = Math.max(0, (top + bottom - clientHeight) / 2);
    }
    this.paint();
  }

  paint() {
    if (!this.box.clientHeight) return;
    const first = Math.max(0, this.#placeAt(this.box.scrollTop) - SPARE);
    let last = first;
    const below = this.box.scrollTop + this.box.clientHeight;
    while (last < this.entries.length && this.tops[last] < below) last += 1;
    last = Math.min(this.entries.length, last + SPARE);
    while (this.pool.length < last - first) this.pool.push(this.#made());
    this.pool.forEach((one, number) => this.#fill(one, first + number < last ? first + number : -1));
    this.#askFor(this.entries.slice(first, last));
  }

  #made() {
    const parts = Object.fromEntries(
      ["time", "life", "mark", "title", "text", "badges", "word"].map((name) => [name, el("span", { cls: name })]),
    );
    const box = el("div", { cls: "row", role: "option" }, ...Object.values(parts));
    this.pad.append(box);
    return { box, parts, at: -1 };
  }

  #fill(one, at) {
    one.at = at;
    one.box.hidden = at < 0;
    if (at < 0) return;
    const row = this.entries[at];
    const key = this.keyOf(row);
    const { box, parts } = one;
    box.id = `row-${key}`;
    box.style.transform = `translateY(${this.tops[at]}px)`;
    box.style.height = `${this.tops[at + 1] - this.tops[at]}px`;
    box.className = `row ${row.tone} k-${row.kind} s-${row.state} ${this.tops[at + 1] - this.tops[at] > LOW ? "high" : ""}`;
    box.setAttribute("aria-posinset", at + 1);
    box.setAttribute("aria-setsize", this.entries.length);
    box.setAttribute("aria-selected", key === this.chosen);
    parts.time.textContent = clock(this.timeOf(row));
    parts.life.textContent = row.life ? `L${row.life}` : "";
    parts.mark.textContent = row.mark;
    parts.title.textContent = visible(row.title);
    parts.text.textContent = visible(row.text || this.said.get(row.item) || "");
    parts.badges.textContent = visible(row.badges.join(" · "));
    parts.word.textContent = wordOf(row);
    if (key === this.chosen) this.box.setAttribute("aria-activedescendant", box.id);
  }

  /** What models said is asked for only where it can be seen. */
  #askFor(rows) {
    const wanted = rows.filter((row) => row.kind === "model" && row.state === "completed" && !this.said.has(row.item));
    if (!wanted.length || this.asked) return;
    this.asked = true;
    this.seen(wanted.map((row) => row.item)).then((found) => {
      for (const row of wanted) this.said.set(row.item, found[row.item] || "");
      this.asked = false;
      this.paint();
    }, () => (this.asked = false));
  }
}
