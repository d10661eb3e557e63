// The versions of everything that the session has, and how it looked at any place of its log. No page, no
// network. It never folds: the last version at or before a place is what the fold of that prefix says.

const FIELDS = ["seq", "time", "item", "kind", "state", "mark", "tone", "life", "begun", "over", "title", "text", "badges", "word"];

export const FILTERS = {
  story: { label: "Conversation", has: (row) => row.kind !== "log" },
  all: { label: "All events", has: () => true },
  lives: { label: "Lives", has: (row) => ["life", "end", "attached", "resumed"].includes(row.kind) },
  trouble: { label: "Failures", has: (row) => isTrouble(row) },
  files: { label: "Files", has: (row) => row.kind === "files" },
};

export function isCrash(row) {
  return row.kind === "end" && row.state === "died";
}

/** The agent died, or the worker that drove it. */
export function isDeath(row) {
  return isCrash(row) || row.kind === "attached";
}

export function isUnknown(row) {
  return row.state === "unknown" && row.kind === "tool";
}

export function isFailure(row) {
  return isCrash(row) || (["tool", "model", "turn"].includes(row.kind) && ["failed", "lost"].includes(row.state));
}

function isTrouble(row) {
  return isFailure(row) || row.kind === "attached" || ["unknown", "refused", "needs_input", "skipped", "gave_up"].includes(row.state) || row.kind === "stop";
}

export class Trace {
  constructor() {
    this.rows = []; // in the order of seq
    this.items = new Map(); // item -> its versions, oldest first
    this.order = []; // items, sorted
    this.after = 0; // events up to here are not loaded yet
    this.head = 0;
  }

  get whole() {
    return this.after === 0;
  }

  /** Rows as they come over the wire; those of events before the loaded ones, or behind them. */
  add(wire, after, upto) {
    const older = this.rows.length > 0 && upto <= this.after;
    const fresh = wire.map((values) => Object.fromEntries(FIELDS.map((name, at) => [name, values[at]])));
    const known = older || !this.rows.length ? fresh : fresh.filter((row) => row.seq > this.head);
    const before = this.items.size;
    for (const row of older ? known.toReversed() : known) {
      const versions = this.items.get(row.item);
      if (!versions) this.items.set(row.item, [row]);
      else if (older) versions.unshift(row);
      else versions.push(row);
    }
    this.rows = older ? known.concat(this.rows) : this.rows.concat(known);
    if (older || !this.order.length) this.order = [...this.items.keys()].sort((a, b) => a - b);
    else if (this.items.size > before) {
      const last = this.order[this.order.length - 1];
      for (const row of known) if (row.item > last && row.item === row.seq) this.order.push(row.item);
      this.order = [...new Set(this.order)];
    }
    if (older || this.head === 0) this.after = after;
    this.head = Math.max(this.head, upto);
    return known.length;
  }

  /** How an item looked at a place; undefined if it was not there yet. */
  pick(item, upto) {
    const versions = this.items.get(item);
    let at = versions ? versions.length - 1 : -1;
    while (at >= 0 && versions[at].seq > upto) at -= 1;
    return at >= 0 ? versions[at] : undefined;
  }

  /** All items as they looked at a place, in order. */
  *at(upto) {
    for (const item of this.order) {
      if (item > upto) return;
      const row = this.pick(item, upto);
      if (row) yield row;
    }
  }

  /** Place in `rows` of the first one with this seq or a later one. */
  find(seq) {
    let low = 0;
    let high = this.rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.rows[middle].seq < seq) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The row that an event is shown as. */
  event(seq) {
    const row = this.rows[this.find(seq)];
    return row && row.seq === seq ? row : undefined;
  }

  /** Time of the last event at or before a place. */
  time(upto) {
    const row = this.rows[this.find(upto + 1) - 1] || this.rows[0];
    return row ? row.time : 0;
  }

  /** Counts as of a place. */
  summary(upto) {
    const sum = { lives: 0, crashes: 0, models: 0, replays: 0, tools: 0, unknown: 0, failures: 0, prompts: 0, running: "", turn: "", needs: false };
    for (const row of this.at(upto)) {
      if (row.kind === "life") sum.lives += 1;
      else if (isCrash(row)) sum.crashes += 1;
      else if (row.kind === "model") sum.models += 1;
      else if (row.kind === "replay") sum.replays += 1;
      else if (row.kind === "tool") sum.tools += 1;
      else if (row.kind === "message") sum.prompts += 1;
      if (isUnknown(row)) sum.unknown += 1;
      if (isFailure(row) && !isCrash(row)) sum.failures += 1;
      if (row.kind === "turn") Object.assign(sum, { turn: row.state, needs: false });
      if (row.kind === "message" && row.state === "queued") sum.turn = "queued";
      if (row.word === "turn.started" || row.kind === "resumed" || row.kind === "life") sum.turn = "running";
      if (row.kind === "permission" && row.state === "asked") sum.needs = true;
    }
    return sum;
  }

  /** Ends of lives by number: when they took their last recorded step, and when that was found out. */
  ends(upto) {
    const ends = new Map();
    for (const row of this.at(upto)) if (row.kind === "end") ends.set(row.life, row);
    return ends;
  }

  /** Deaths of workers whose agents lived on: when they were last heard of, and when others came. */
  losses(upto) {
    return [...this.at(upto)].filter((row) => row.kind === "attached");
  }

  /** What ran when: one bar for each try, also for the lost ones. Times in ms. */
  bars(upto) {
    const bars = [];
    const ends = this.ends(upto);
    const now = this.time(upto);
    for (const item of this.order) {
      if (item > upto) break;
      const versions = this.items.get(item);
      if (!["model", "tool", "replay"].includes(versions[0].kind)) continue;
      let bar = null;
      for (const row of versions) {
        if (row.seq > upto) break;
        if (row.begun && (!bar || bar.begun !== row.begun)) {
          bar = { item, kind: row.kind, life: row.life, begun: row.begun, over: 0, row, open: false };
          bars.push(bar);
        }
        if (bar) Object.assign(bar, { over: row.over, row });
      }
    }
    for (const bar of bars) {
      const end = ends.get(bar.life);
      if (end && end.state !== "settled" && (!bar.over || bar.over > end.begun)) {
        Object.assign(bar, { over: Math.max(bar.begun, end.begun), open: true });
      } else if (!bar.over) Object.assign(bar, { over: now, open: true });
    }
    return bars;
  }
}
