// Lives on a time axis: a lane for each, its calls as bars, a hard edge where it died. Drawn, with a list as its
// twin for who cannot see it.

import { axis } from "./axis.js";
import { el, span, clock, visible } from "./text.js";

const LANE = 30;
const TOP = 20;
const MOST = 12; // lanes on the picture at once; the latest ones, and fewer in a low window
const SHARE = 0.3; // of the window that they may take

function room() {
  return Math.max(3, Math.min(MOST, Math.floor((innerHeight * SHARE) / LANE)));
}

export class Lanes {
  constructor(canvas, twin, choose) {
    Object.assign(this, { canvas, twin, choose });
    this.cut = true;
    this.trace = null;
    this.upto = Infinity;
    this.chosen = 0;
    this.bars = [];
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      palette = null;
      this.draw();
    });
    window.addEventListener("resize", () => this.trace && this.show(this.trace, this.upto, this.chosen));
    canvas.addEventListener("click", (event) => this.#click(event));
  }

  show(trace, upto, chosen) {
    Object.assign(this, { trace, upto, chosen });
    this.bars = trace.bars(upto);
    this.lives = [...trace.at(upto)].filter((row) => row.kind === "life");
    this.ends = trace.ends(upto);
    this.losses = trace.losses(upto);
    this.draw();
    this.#tell();
  }

  #gutter(width) {
    return width < 640 ? 44 : 176;
  }

  draw() {
    const width = this.canvas.parentElement.clientWidth;
    if (!this.trace || !width) return;
    const lives = this.lives.slice(-room());
    const height = TOP + Math.max(1, lives.length) * LANE + 6;
    const ratio = devicePixelRatio || 1;
    this.canvas.width = width * ratio;
    this.canvas.height = height * ratio;
    this.canvas.style.height = `${height}px`;
    const pen = this.canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const ink = inks();
    const left = this.#gutter(width);
    const now = this.trace.time(this.upto);
    const shown = new Set(lives.map((row) => row.life));
    const bars = this.bars.filter((bar) => shown.has(bar.life));
    const points = lives.flatMap((row) => [[row.begun, row.begun], ...this.#lifeSpan(row, now)]);
    this.scale = axis([...points, ...bars.map((bar) => [bar.begun, bar.over])], width - left - 20, this.cut);
    this.lane = new Map(lives.map((row, at) => [row.life, TOP + at * LANE]));
    const x = (ms) => left + this.scale.x(ms);
    pen.font = "12px ui-sans-serif, system-ui, sans-serif";
    this.#gaps(pen, ink, left, height);
    lives.forEach((row, at) => this.#life(pen, ink, row, TOP + at * LANE, x, now, left, width));
    this.#bars(pen, ink, bars, x);
    for (const loss of this.losses) if (shown.has(loss.life)) this.#edge(pen, ink, loss, x, width, height);
    lives.forEach((row) => this.#edge(pen, ink, this.ends.get(row.life), x, width, height));
    const at = x(now);
    pen.fillStyle = ink.accent;
    pen.fillRect(at, 4, 1.5, height - 6);
    pen.fillStyle = ink.dim;
    pen.textAlign = at > width - 80 ? "right" : "left";
    pen.fillText(clock(now), at + (at > width - 80 ? -4 : 5), 13);
    pen.textAlign = "left";
    pen.fillText(clock(this.scale.first), left, 13);
    if (lives.length < this.lives.length && left > 100) pen.fillText(`${this.lives.length - lives.length} lives before`, 10, 13);
  }

  /** When a life is known to have lived: to its last recorded step if it died. */
  #lifeSpan(row, now) {
    const end = this.ends.get(row.life);
    const last = end && end.state !== "settled" ? end.begun : row.over || now;
    return [[Math.max(row.begun, last - 1), Math.max(row.begun, last)]];
  }

  #gaps(pen, ink, left, height) {
    let free = left + pen.measureText(clock(this.scale.first)).width + 4; // the start of the axis is said there
    for (const gap of this.scale.gaps) {
      const at = left + gap.x;
      pen.fillStyle = ink.faint;
      pen.fillRect(at + 4, TOP, gap.width - 8, height - TOP - 6);
      pen.fillStyle = ink.dim;
      pen.textAlign = "center";
      pen.fillText("⁄⁄", at + gap.width / 2, height - 10);
      const said = span(gap.to - gap.from).replace(/ \d+ (s|min|h)$/, "");
      const wide = pen.measureText(said).width;
      pen.textAlign = "left";
      const from = at + gap.width / 2 - wide / 2;
      if (from < free) continue;
      pen.fillText(said, from, 13);
      free = from + wide + 4;
    }
  }

  #life(pen, ink, row, y, x, now, left, width) {
    const end = this.ends.get(row.life);
    const died = end && end.state !== "settled";
    const last = died ? Math.max(row.begun, end.begun) : row.over || now;
    pen.fillStyle = ink.lane;
    pen.fillRect(x(row.begun), y + 3, Math.max(3, x(last) - x(row.begun)), LANE - 8);
    if (died) {
      // From here until somebody looked, nobody knows: hatched.
      pen.save();
      pen.beginPath();
      pen.rect(x(last), y + 3, Math.max(0, x(end.over) - x(last)), LANE - 8);
      pen.clip();
      pen.strokeStyle = ink.hatch;
      for (let at = x(last) - LANE; at < x(end.over); at += 7) {
        pen.beginPath();
        pen.moveTo(at, y + LANE);
        pen.lineTo(at + LANE, y);
        pen.stroke();
      }
      pen.restore();
    }
    pen.fillStyle = died ? ink.bad : ink.text;
    pen.font = "600 12px ui-sans-serif, system-ui, sans-serif";
    const name = left < 100 ? `L${row.life}` : `Life ${row.life}`;
    pen.fillText(name, 10, y + 18);
    const behind = Math.max(62, 18 + pen.measureText(name).width);
    pen.font = "12px ui-sans-serif, system-ui, sans-serif";
    if (left < 100) return;
    const word = died ? { died: "died ╳", stopped: "stopped ■", gave_up: "gave up ■" }[end.state] : row.state === "ended" ? "ended" : "running";
    pen.fillStyle = died ? ink.bad : ink.dim;
    pen.fillText(`${word} · ${span(last - row.begun)}`, behind, y + 18);
  }

  #bars(pen, ink, bars, x) {
    const drawn = new Map(); // the last pixel of each lane: a hundred thousand bars are not all drawn
    for (const bar of bars) {
      const y = this.lane.get(bar.life);
      const from = x(bar.begun);
      const end = bar.open ? this.ends.get(bar.life) : undefined;
      const width = Math.max(2.5, x(bar.over) - from - 0.5);
      const tone = bar.row.state === "unknown" ? "warn" : ["failed", "lost"].includes(bar.row.state) ? "bad" : bar.kind;
      const key = `${bar.life} ${tone}`;
      if (width < 3 && drawn.get(key) === Math.round(from) && bar.item !== this.chosen) continue;
      drawn.set(key, Math.round(from));
      const high = bar.kind === "model" ? 9 : bar.kind === "replay" ? 20 : 9;
      const top = y + (bar.kind === "model" ? 5 : bar.kind === "replay" ? 4 : 16);
      pen.fillStyle = ink[tone] || ink.text;
      pen.fillRect(from, top, width, high);
      if (end && end.state !== "settled" && bar.kind === "tool") {
        // It was cut off: it may have run on until the life was found dead.
        pen.strokeStyle = ink[tone];
        pen.setLineDash([4, 3]);
        pen.strokeRect(from + 0.5, top + 0.5, Math.max(width, x(end.over) - from - 1), high - 1);
        pen.setLineDash([]);
      }
      if (bar.item === this.chosen) {
        pen.strokeStyle = ink.accent;
        pen.lineWidth = 2;
        pen.strokeRect(from - 2, top - 2, width + 4, high + 4);
        pen.lineWidth = 1;
      }
    }
  }

  #edge(pen, ink, end, x, width, height) {
    if (!end || end.state === "settled") return;
    const y = this.lane.get(end.life);
    const at = x(end.begun);
    const lost = end.kind === "attached";
    pen.fillStyle = end.state === "died" ? ink.bad : ink.warn;
    pen.fillRect(at, TOP - 2, 1, height - TOP - 4);
    pen.fillRect(at - 1.5, y, 4, LANE - 2);
    if (lost) pen.fillRect(x(end.over) - 1, y, 2, LANE - 2); // here another worker came
    const sign = end.state === "died" ? "╳" : lost ? "┣" : "■";
    const said = visible([sign, lost ? "worker lost" : end.text, ...end.badges].join(" · ").replace(" · ", " "));
    const room = width - at - 10;
    pen.font = "600 11px ui-sans-serif, system-ui, sans-serif";
    const wide = pen.measureText(said).width;
    const back = wide > room && at - wide - 8 > 0;
    const from = back ? at - wide - 7 : at + 6;
    pen.fillStyle = ink.page;
    pen.globalAlpha = 0.85;
    pen.fillRect(from - 2, y + 2, Math.min(wide + 4, back ? wide + 4 : room), 12);
    pen.globalAlpha = 1;
    pen.fillStyle = end.state === "died" ? ink.bad : ink.warn;
    pen.fillText(said, from, y + 12, back ? undefined : room);
    pen.font = "12px ui-sans-serif, system-ui, sans-serif";
  }

  #click(event) {
    const box = this.canvas.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    const left = this.#gutter(box.width);
    const life = [...(this.lane || [])].find(([, y]) => py >= y && py < y + LANE)?.[0];
    if (life === undefined) return;
    const end = this.ends.get(life);
    const edge = [end, ...this.losses.filter((loss) => loss.life === life)].find((one) => one && Math.abs(left + this.scale.x(one.begun) - px) < 6);
    if (edge) return this.choose(edge.item);
    if (px < left) return this.choose(this.lives.find((row) => row.life === life).item);
    const upper = py < this.lane.get(life) + 14;
    const away = (bar) => {
      const [from, to] = [left + this.scale.x(bar.begun), left + this.scale.x(bar.over)];
      return (px < from ? from - px : Math.max(0, px - to)) + ((bar.kind === "model") === upper ? 0 : 4);
    };
    const near = this.bars.filter((bar) => bar.life === life).reduce((a, b) => (!a || away(b) < away(a) ? b : a), null);
    if (near) this.choose(near.item);
  }

  #tell() {
    const told = this.lives.slice(-room()).map((row) => {
      const end = this.ends.get(row.life);
      const how = !end ? "running" : end.state === "died" ? `died after ${clock(end.begun)}: ${end.text}` : end.text;
      const lost = this.losses.filter((loss) => loss.life === row.life).map((loss) => ["its worker was lost", `after ${clock(loss.begun)}`, ...loss.badges].join(" "));
      return el("li", { text: `Life ${row.life}, from ${clock(row.begun)}: ${[...lost, how, ...(end?.badges || [])].join(", ")}` });
    });
    this.twin.replaceChildren(...told);
  }
}

let palette = null; // to look a colour up has the browser work out the styles of the whole page

/** Colours as they are resolved now: a canvas knows no light-dark(). */
function inks() {
  if (palette) return palette;
  const probe = el("span");
  document.body.append(probe);
  const ink = {};
  for (const name of ["text", "dim", "faint", "lane", "hatch", "page", "accent", "bad", "warn", "model", "tool", "replay"]) {
    probe.className = `ink-${name}`;
    ink[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  palette = ink;
  return palette;
}
