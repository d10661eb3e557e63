// The page: one session, the place that is looked at, the chosen item, and what shows them.

import { Details } from "./detail.js";
import { Finder } from "./finder.js";
import { help } from "./help.js";
import { Lanes } from "./lanes.js";
import { List } from "./list.js";
import { Player } from "./player.js";
import { Sessions } from "./sessions.js";
import { FileSource, ServerSource } from "./source.js";
import { el, many, visible } from "./text.js";
import { FILTERS, Trace, isDeath, isFailure, isUnknown } from "./trace.js";
import { verdict } from "./verdict.js";

const $ = (id) => document.getElementById(id);
const FIRST = 400; // events of the first answer: the last part comes first
const CHUNK = 8000;

const TURN = { running: "running", completed: "completed", failed: "failed", cancelled: "cancelled", needs_input: "needs you", queued: "queued" };
const JUMPS = { crash: isDeath, prompt: (row) => row.kind === "message", failure: isFailure, unknown: isUnknown };

class App {
  constructor(source) {
    this.source = source;
    this.session = "";
    this.trace = new Trace();
    this.upto = Infinity;
    this.item = 0;
    this.filter = "story";
    this.narrowed = null; // one life or tool that the list is narrowed to
    this.following = source.live;
    this.unfollow = () => {};
    this.list = new List($("list"), $("pad"), { choose: (row) => this.choose(row.item, row.seq), seen: (items) => source.said(this.session, items) });
    this.lanes = new Lanes($("lanes"), $("lanes-twin"), (item) => this.choose(item));
    this.details = new Details($("detail"), (seq) => this.goTo(seq), (row) => this.#narrower(row));
    this.player = new Player({ play: $("play"), speed: $("speed"), skip: $("skip"), scrub: $("scrub"), place: $("place"), now: $("now") }, (upto) => this.lookAt(upto));
    this.finder = new Finder({ form: $("find-form"), input: $("find"), note: $("find-note") }, source, { session: () => this.session, go: (seq) => this.goTo(seq) });
    this.sessions = new Sessions({ rows: $("sessions-rows"), note: $("sessions-note"), more: $("sessions-more") }, source);
    this.#wire();
  }

  #wire() {
    $("filters").replaceChildren(
      ...Object.entries(FILTERS).map(([name, { label }]) =>
        el("button", { type: "button", role: "radio", "data-filter": name, text: label, on: { click: () => this.show(name) } }),
      ),
    );
    $("follow").hidden = !this.source.live;
    $("home").hidden = !this.source.live;
    $("follow").addEventListener("click", () => this.follow(!this.following));
    $("gaps").addEventListener("click", () => this.#gaps());
    $("only").addEventListener("click", () => this.narrow(null));
    $("help").replaceChildren(...help());
    $("help-open").addEventListener("click", () => $("help").showModal());
    $("list").addEventListener("wheel", () => this.following && !this.list.atEnd && this.follow(false), { passive: true });
    for (const button of document.querySelectorAll("[data-jump]")) button.addEventListener("click", () => this.jump(button.dataset.jump, 1));
    document.addEventListener("keydown", (event) => this.#key(event));
    window.addEventListener("hashchange", () => this.route());
  }

  // ------------------------------------------------------------------ where we are

  async route() {
    const found = /^#\/s\/([^/]+)(?:\/e\/(\d+))?(?:\/at\/(\d+))?$/.exec(location.hash);
    try {
      if (!found) return await this.#home();
      const [session, seq, at] = [decodeURIComponent(found[1]), Number(found[2] || 0), Number(found[3] || 0)];
      if (session !== this.session) await this.open(session);
      if (at || this.upto !== Infinity) this.lookAt(at || Infinity);
      if (seq && seq !== this.seq) await this.goTo(seq);
    } catch (error) {
      this.trouble(error.message);
    }
    return undefined;
  }

  async #home() {
    this.#close();
    $("session").hidden = true;
    $("sessions").hidden = false;
    document.title = "Sessions · harness-durable";
    await this.sessions.load();
    $("loading").hidden = true;
  }

  #close() {
    this.unfollow();
    this.player.stop();
    Object.assign(this, { session: "", trace: new Trace(), upto: Infinity, item: 0, seq: 0, narrowed: null });
    this.list.said.clear();
    this.list.show([], { keyOf: (row) => row.item });
    $("trouble").hidden = true;
    $("arriving").hidden = true;
  }

  async open(session) {
    this.#close();
    this.session = session;
    $("sessions").hidden = true;
    $("loading").hidden = false;
    const trace = this.trace;
    $("loading").textContent = "Reading the log …";
    const told = (part) => this.trace === trace && ($("loading").textContent = `Reading the log … ${Math.floor(part * 100)} %`);
    const page = await this.source.rows(session, 0, FIRST, told);
    if (this.trace !== trace) return;
    trace.add(page.rows, page.after, page.upto);
    $("loading").hidden = true;
    $("session").hidden = false;
    $("name").textContent = visible(session);
    document.title = `${visible(session)} · harness-durable`;
    if (page.damage) this.trouble(`The log is damaged, and not all of it is shown: ${page.damage}`);
    this.details.clear();
    this.following = this.source.live;
    $("follow").setAttribute("aria-pressed", this.following);
    this.refresh({ end: this.source.live });
    this.unfollow = this.source.follow(session, trace.head, (kind, told) => this.trace === trace && this.#news(kind, told));
    this.rest = this.#rest(trace);
  }

  /** The earlier events, in large pieces, without holding up the page. */
  async #rest(trace) {
    while (trace.after > 0) {
      await new Promise((done) => setTimeout(done, 0));
      const page = await this.source.rows(this.session, trace.after + 1, CHUNK);
      if (this.trace !== trace) return;
      trace.add(page.rows, page.after, page.upto);
      this.refresh();
    }
  }

  #news(kind, told) {
    if (kind === "rows") {
      const more = this.trace.add(told.rows, this.trace.after, told.upto);
      if (more) this.refresh({ end: this.following && this.upto === Infinity });
      if (more && this.item && told.rows.some((row) => row[2] === this.item)) this.#detail();
    } else if (kind === "progress") {
      $("arriving").hidden = !told.text || this.upto !== Infinity;
      $("arriving").textContent = visible(told.text.slice(-600));
    } else if (kind === "lost") this.trouble("The connection is lost; trying again …", "lost");
    else if (kind === "open") this.untroubled("lost");
    else if (kind === "trouble") this.trouble(told.error, "lost");
  }

  trouble(text, kind = "") {
    $("loading").hidden = true;
    $("session").hidden = false;
    $("trouble").hidden = false;
    $("trouble").dataset.kind = kind;
    $("trouble").textContent = visible(text);
  }

  untroubled(kind) {
    if ($("trouble").dataset.kind === kind) $("trouble").hidden = true;
  }

  // ------------------------------------------------------------------ what is shown

  refresh({ end = false } = {}) {
    const { trace, upto } = this;
    const filter = FILTERS[this.filter];
    const all = this.filter === "all" ? trace.rows.filter((row) => row.word && row.seq <= upto) : [...trace.at(upto)].filter(filter.has);
    const rows = this.narrowed ? all.filter(this.narrowed.has) : all;
    $("only").hidden = !this.narrowed;
    $("only").textContent = this.narrowed ? `Only ${visible(this.narrowed.name)} ✕` : "";
    const keyOf = this.filter === "all" ? (row) => row.seq : (row) => row.item;
    this.list.chosen = this.filter === "all" ? this.seq : this.item;
    const timeOf = this.filter === "all" ? (row) => row.time : (row) => trace.items.get(row.item)[0].time;
    this.list.show(rows, { keyOf, timeOf, end });
    this.lanes.show(trace, upto, this.item);
    this.player.show(trace, upto);
    this.#head();
    for (const button of $("filters").children) button.setAttribute("aria-checked", button.dataset.filter === this.filter);
  }

  #head() {
    const sum = this.trace.summary(this.upto);
    const state = sum.needs ? "asks you" : TURN[sum.turn] || "idle";
    $("status").textContent = state;
    $("status").className = `pill st-${sum.needs ? "waiting" : sum.turn}`;
    const facts = [many(sum.lives, "life", "lives"), many(sum.models, "model call"), many(sum.tools, "tool call")];
    if (sum.replays) facts.push(`${sum.replays} from the log`);
    if (sum.failures) facts.push(`${sum.failures} failed`);
    if (sum.unknown) facts.push(`▲ ${sum.unknown} unknown`);
    $("facts").textContent = (this.trace.whole ? "" : "reading what was before · ") + facts.join(" · ");
    $("verdict").replaceChildren(
      ...verdict(this.trace, this.upto).map(({ text, item, cls }) =>
        item ? this.#link(item, text, cls) : el("span", { text }),
      ),
    );
  }

  /** To an item of this session; one that can be copied, too. */
  #link(item, text, cls = "") {
    const go = (event) => {
      event.preventDefault();
      this.choose(item);
    };
    return el("a", { href: `#/s/${encodeURIComponent(this.session)}/e/${item}`, cls: `link ${cls}`, text, on: { click: go } });
  }

  show(filter) {
    this.filter = filter;
    this.refresh();
    this.list.reveal(this.list.chosen);
  }

  /** Show one life or tool only; null: all of them. */
  narrow(only) {
    this.narrowed = only;
    this.refresh();
    this.list.reveal(this.list.chosen);
  }

  /** What the list can be narrowed to from a row. */
  #narrower(row) {
    const found = [];
    if (row.life) found.push({ name: `life ${row.life}`, has: (one) => one.life === row.life });
    if (row.kind === "tool") found.push({ name: row.title, has: (one) => one.kind === "tool" && one.title === row.title });
    return found.filter((one) => one.name !== this.narrowed?.name).map((one) => ({ label: `Only ${one.name}`, act: () => this.narrow(one) }));
  }

  #gaps() {
    this.lanes.cut = !this.lanes.cut;
    $("gaps").setAttribute("aria-pressed", this.lanes.cut);
    $("gaps").textContent = this.lanes.cut ? "Idle time cut" : "Idle time shown";
    this.lanes.draw();
  }

  follow(on) {
    this.following = on;
    $("follow").setAttribute("aria-pressed", on);
    if (on) {
      this.player.stop();
      this.upto = Infinity;
      this.refresh({ end: true });
    }
  }

  /** Look at another place; Infinity is the end, wherever it is by now. */
  lookAt(upto) {
    this.upto = upto;
    if (upto !== Infinity) this.following = false;
    $("follow").setAttribute("aria-pressed", this.following);
    this.refresh({ end: upto !== Infinity });
    if (this.item) this.#detail();
    this.#address();
  }

  // ------------------------------------------------------------------ the chosen item

  choose(item, seq = 0) {
    this.item = item;
    const row = this.trace.pick(item, this.upto);
    this.seq = seq || row?.seq || item;
    if (this.following && item !== this.list.entries.at(-1)?.item) this.follow(false);
    const hidden = row && this.filter !== "all" && !FILTERS[this.filter].has(row);
    if (row && this.narrowed && !this.narrowed.has(row)) this.narrowed = null;
    if (hidden) this.filter = row.kind === "log" ? "all" : "story";
    this.refresh();
    this.list.reveal(this.filter === "all" ? this.seq : item);
    this.#address();
    return this.#detail();
  }

  /** Show an event, also one that is not loaded or that lies behind the place that is looked at. */
  async goTo(seq) {
    if (seq <= this.trace.after) await this.rest;
    const row = this.trace.event(seq);
    if (!row) throw new Error(`there is no event ${seq}; the last one is ${this.trace.head}`);
    if (seq > this.upto) this.lookAt(seq);
    return this.choose(row.item, seq);
  }

  #address() {
    const at = this.upto === Infinity ? "" : `/at/${this.upto}`;
    const event = this.item ? `/e/${this.seq}` : "";
    history.replaceState(null, "", `#/s/${encodeURIComponent(this.session)}${event}${at}`);
  }

  async #detail() {
    const { item, session, upto } = this;
    const row = this.trace.pick(item, upto);
    if (!row) return this.details.clear();
    try {
      const found = await this.source.detail(session, item);
      if (this.item === item && this.session === session && this.upto === upto) this.details.show(this.source, session, row, found, upto);
    } catch (error) {
      this.details.trouble(error.message);
    }
    return undefined;
  }

  // ------------------------------------------------------------------ moving about

  step(by) {
    const { entries } = this.list;
    if (!entries.length) return;
    const now = this.list.indexOf(this.list.chosen);
    const from = now >= 0 ? now : by > 0 ? -1 : entries.length; // nothing chosen: from outside
    const next = entries[Math.min(entries.length - 1, Math.max(0, from + by))];
    this.choose(next.item, this.filter === "all" ? next.seq : 0);
  }

  /** The next crash, prompt, failure or unknown outcome from the chosen item on, round the end. */
  jump(what, by) {
    const all = [...this.trace.at(Infinity)].filter(JUMPS[what]).map((row) => row.item);
    if (!all.length) return;
    const here = this.item || (this.upto === Infinity ? 0 : this.upto);
    const next = by > 0 ? (all.find((item) => item > here) ?? all[0]) : (all.findLast((item) => item < here) ?? all.at(-1));
    const last = this.trace.items.get(next).at(-1);
    if (last.seq > this.upto) this.lookAt(last.seq);
    this.choose(next);
  }

  #key(event) {
    const field = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "range" && event.target.type !== "checkbox";
    if (event.key === "Escape") return document.activeElement?.blur();
    if (field || event.ctrlKey || event.metaKey || event.altKey || $("help").open) return undefined;
    const inList = document.activeElement === $("list");
    const keys = {
      j: () => this.step(1), k: () => this.step(-1), J: () => this.jump("prompt", 1), K: () => this.jump("prompt", -1),
      "]": () => this.jump("crash", 1), "[": () => this.jump("crash", -1), "/": () => $("find").select(),
      f: () => this.follow(!this.following), "?": () => $("help").showModal(), p: () => this.player.toggle(),
      e: () => this.player.now.click(), r: () => this.#raw(), o: () => this.narrow(null),
      ...(inList ? { ArrowDown: () => this.step(1), ArrowUp: () => this.step(-1), Home: () => this.step(-1e9), End: () => this.step(1e9) } : {}),
    };
    if (!keys[event.key] || this.session === "") return undefined;
    event.preventDefault();
    return keys[event.key]();
  }

  #raw() {
    const raw = $("detail").querySelector("details.raw");
    if (raw) raw.open = !raw.open;
    raw?.scrollIntoView();
  }
}

async function begin() {
  const inside = $("data");
  const source = inside ? new FileSource(JSON.parse(inside.textContent)) : new ServerSource();
  const app = new App(source);
  window.harnessDurable = app; // for tests, and for who looks closer
  try {
    const told = source.start();
    if (location.hash) app.route(); // a link says where to go, and waits for nothing
    const { session, lost } = await told;
    if (!location.hash) {
      if (session) history.replaceState(null, "", `#/s/${encodeURIComponent(session)}`);
      await app.route();
    }
    if (lost.length) app.trouble(lost.join(" "), "note");
  } catch (error) {
    app.trouble(error.message);
  }
}

begin();
