// The list of sessions; those that need a person come first, as the server sends them.

import { el, ago } from "./text.js";

const STATES = { needs_input: "needs you", waiting: "asks you" };

export class Sessions {
  constructor(parts, source) {
    Object.assign(this, parts, { source, count: 0 });
    this.more.addEventListener("click", () => this.load(this.count));
  }

  async load(offset = 0) {
    const { sessions, total } = await this.source.sessions(offset);
    const made = sessions.map((one) => this.#row(one));
    if (offset) this.rows.append(...made);
    else this.rows.replaceChildren(...made);
    this.count = offset + sessions.length;
    this.more.hidden = this.count >= total;
    this.note.textContent = total ? `${this.count} of ${total}` : "There is no session yet; `harness-durable run` begins one.";
  }

  #row(one) {
    const facts = one.facts || {};
    const number = (name) => el("td", { cls: "number", text: one.facts ? (facts[name] || 0).toLocaleString("en") : "…" });
    const state = STATES[one.status] || one.status;
    return el(
      "tr",
      {},
      el("td", {}, el("a", { href: `#/s/${encodeURIComponent(one.session)}`, text: one.session }), ...(one.title ? [el("div", { cls: "dim", text: one.title })] : [])),
      el("td", {}, el("span", { cls: `pill st-${one.status}`, text: state })),
      el("td", { text: ago(one.updated, Date.now()) }),
      number("turns"),
      number("lives"),
      el("td", { cls: facts.unknown ? "number warn" : "number", text: one.facts ? `${facts.unknown ? "▲ " : ""}${facts.unknown || 0}` : "…" }),
      number("replays"),
      number("tokens"),
      el("td", { cls: "number", text: one.events.toLocaleString("en") }),
      el("td", { text: one.driven }),
    );
  }
}
