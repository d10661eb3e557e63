// What is known of the chosen item, as far as it was known at the place that is looked at.

import { asMarkdown, copied } from "./copy.js";
import { el, bytes, clock, day, span } from "./text.js";
import { wordOf } from "./list.js";

const FOUND = { attached: "another worker came", died: "found dead", stopped: "ended", gave_up: "ended" };

export class Details {
  /** `go(seq)` follows a link; `only(row)` gives what the list can be narrowed to: label and what does it. */
  constructor(box, go, only) {
    Object.assign(this, { box, go, only });
    this.key = "";
  }

  clear() {
    this.key = "";
    this.box.replaceChildren(el("p", { cls: "dim", text: "Choose a line to see what is known of it." }));
  }

  /** `row` is the version at `upto`; `found` what the source knows of its item. */
  show(source, session, row, found, upto) {
    const top = this.key === `${session} ${row.item}` ? this.box.scrollTop : 0;
    const unfolded = new Set([...this.box.querySelectorAll("details[open]")].map((one) => one.dataset.key));
    const same = this.key === `${session} ${row.item}`;
    this.key = `${session} ${row.item}`;
    this.key0 = { source, session };
    const known = (one) => (one.seq ?? one[0]) <= upto;
    const texts = found.texts.filter(known);
    const told = texts.filter((one) => /^m\d+$/.test(one.name));
    const others = texts.filter((one) => !/^m\d+$/.test(one.name));
    this.box.replaceChildren(
      this.#head(row),
      this.#acts(session, row, found, upto),
      this.#facts(row, found.facts.filter(known)),
      ...this.#changes(found, upto),
      ...others.filter((one) => one.name !== "body").map((one) => this.#text(one, true)),
      ...others.filter((one) => one.name === "body").map((one) => this.#text(one, true)),
      ...(told.length ? [this.#told(told)] : []),
      this.#raw(found.raw.filter(known)),
    );
    if (same) for (const one of this.box.querySelectorAll("details")) if (unfolded.has(one.dataset.key)) one.open = true;
    this.box.scrollTop = top;
  }

  trouble(text) {
    this.box.replaceChildren(el("p", { cls: "bad", role: "alert", text }));
  }

  #head(row) {
    const word = wordOf(row);
    return el(
      "header",
      { cls: `detail-head ${row.tone}` },
      el("h2", {}, el("span", { cls: "mark", text: `${row.mark} ` }), el("span", { text: row.title })),
      ...(word ? [el("span", { cls: `pill ${row.tone}`, text: word })] : []),
      ...row.badges.map((badge) => el("span", { cls: "pill", text: badge })),
    );
  }

  #acts(session, row, found, upto) {
    const copy = el("button", { type: "button", text: "Copy as Markdown" });
    copy.addEventListener("click", async () => {
      copy.textContent = (await copied(asMarkdown(session, row, wordOf(row), found, upto))) ? "Copied" : "The browser forbids it";
    });
    const only = this.only(row).map(({ label, act }) => el("button", { type: "button", text: label, on: { click: act } }));
    return el("p", { cls: "acts" }, copy, ...only);
  }

  #facts(row, facts) {
    const lines = [["when", `${day(row.time)} ${clock(row.time, true)}, event ${row.seq}`]];
    if (row.kind === "attached" || (row.kind === "end" && row.state !== "settled")) {
      lines.push(["last recorded step", clock(row.begun, true)]);
      lines.push([FOUND[row.state], `${clock(row.over, true)}, ${span(row.over - row.begun)} later`]);
    } else if (row.begun && row.over && !["replay", "end"].includes(row.kind) && row.state !== "unknown") lines.push(["took", span(row.over - row.begun)]);
    if (row.life) lines.push(["life", `life ${row.life}`]);
    const shown = lines.map(([label, value]) => ({ label, value, link: 0 }));
    for (const [, label, value, link] of facts.map((fact) => (Array.isArray(fact) ? fact : Object.values(fact)))) {
      if (label !== "life") shown.push({ label, value, link });
    }
    return el(
      "dl",
      { cls: "facts" },
      ...shown.flatMap(({ label, value, link }) => [
        el("dt", { text: label }),
        el("dd", {}, link ? el("button", { type: "button", cls: "link", text: `${value} ↗`, on: { click: () => this.go(link) } }) : el("span", { text: value })),
      ]),
    );
  }

  #text(text, open) {
    const size = text.size > 400 ? ` · ${bytes(text.size)}` : "";
    const heading = el("summary", { text: `${text.fresh ? "new · " : ""}${text.label}${size}` });
    if (text.missing) return el("section", { cls: "text" }, el("h3", { text: text.label }), el("p", { cls: "dim", text: text.missing }));
    if (!text.text && text.size === 0 && !text.name) return el("h3", { cls: "part", text: text.label });
    const shown = el("pre", { text: text.text, tabindex: "0" });
    const box = el("details", { cls: `text ${text.fresh ? "fresh" : ""}`, open, "data-key": `${text.seq} ${text.name} ${text.label}` }, heading, shown);
    this.#more(box, text, text.text.length);
    return box;
  }

  #more(box, text, at) {
    if (at >= text.size || !text.name) return;
    const button = el("button", { type: "button", text: `Show more (${bytes(text.size - at)} left)` });
    button.addEventListener("click", async () => {
      button.disabled = true;
      try {
        const page = await this.key0.source.body(this.key0.session, text.seq, text.name, at);
        box.insertBefore(el("pre", { text: page.text, tabindex: "0" }), button);
        button.remove();
        this.#more(box, text, at + page.text.length);
      } catch (error) {
        button.replaceWith(el("p", { cls: "dim", text: error.message }));
      }
    });
    box.append(button);
  }

  #told(told) {
    const heading = el("summary", { text: `What the model was sent: ${told.filter((one) => one.name !== "m0").length} messages shown` });
    const last = told.length - 1;
    return el(
      "details",
      { cls: "told", open: told.some((one) => one.fresh), "data-key": "told" },
      heading,
      ...told.map((one, at) => this.#text(one, one.fresh || at === last)),
    );
  }

  #raw(raw) {
    return el(
      "details",
      { cls: "raw", "data-key": "raw" },
      el("summary", { text: `Raw ${raw.length === 1 ? "event" : `events (${raw.length})`}` }),
      ...raw.map(([, json]) => el("pre", { text: json, tabindex: "0" })),
    );
  }

  #changes(found, upto) {
    const changes = (found.changes || []).filter((one) => one.seq <= upto);
    if (!changes.length) return [];
    const rows = changes.map((one) => {
      const box = el("details", { cls: "change", "data-key": `change ${one.number}` }, el("summary", { text: `${one.op}  ${one.path}` }));
      box.addEventListener("toggle", async () => {
        if (!box.open || box.dataset.read) return;
        box.dataset.read = "1";
        try {
          const told = await this.key0.source.changes(this.key0.session, one.seq, one.number);
          box.append(this.#difference(told));
        } catch (error) {
          box.append(el("p", { cls: "dim", text: error.message }));
        }
      });
      return box;
    });
    return [el("section", { cls: "text" }, el("h3", { text: "Files" }), ...rows)];
  }

  #difference(told) {
    if (told.missing) return el("p", { cls: "dim", text: told.missing });
    const tone = { "+": "plus", "-": "minus", "@": "dim" };
    const lines = told.lines.slice(0, 400).map((line) => el("span", { cls: tone[line[0]] || "", text: `${line}\n` }));
    const more = told.lines.length > 400 ? [el("span", { cls: "dim", text: told.lines.slice(400).join("\n") })] : [];
    return el("pre", { tabindex: "0" }, ...lines, ...more);
  }
}
