// Replay: moves the place that the page looks at, event by event, in the time that it took.

const IDLE = 400; // ms that an idle time takes when it is skipped
const FRAME = 16;

export class Player {
  /** `go(upto)` is called with each new place; Infinity is the end, which may grow. */
  constructor(parts, go) {
    Object.assign(this, parts, { go, trace: null, upto: Infinity, timer: 0 });
    this.play.addEventListener("click", () => this.toggle());
    this.now.addEventListener("click", () => {
      this.stop();
      this.go(Infinity);
    });
    this.scrub.addEventListener("input", () => {
      this.stop();
      const at = Number(this.scrub.value);
      this.go(at >= this.trace.head ? Infinity : at);
    });
  }

  show(trace, upto) {
    Object.assign(this, { trace, upto });
    const at = Math.min(upto, trace.head);
    this.scrub.min = Math.min(trace.after + 1, trace.head);
    this.scrub.max = trace.head;
    this.scrub.value = at;
    this.scrub.setAttribute("aria-valuetext", `event ${at} of ${trace.head}`);
    this.place.textContent = `event ${at.toLocaleString("en")} of ${trace.head.toLocaleString("en")}`;
    this.now.hidden = upto === Infinity;
    document.body.classList.toggle("past", upto !== Infinity);
  }

  get playing() {
    return this.timer !== 0;
  }

  toggle() {
    if (this.playing) return this.stop();
    if (!this.trace || !this.trace.head) return undefined;
    const from = this.upto === Infinity ? this.trace.after : this.upto;
    this.#label(true);
    return this.#step(from);
  }

  stop() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.#label(false);
  }

  #label(playing) {
    this.play.textContent = playing ? "❚❚ Pause" : "▶ Replay";
    this.play.setAttribute("aria-pressed", playing);
  }

  #step(from) {
    const { trace } = this;
    let at = Math.max(from, trace.after) + 1;
    if (at >= trace.head) {
      this.stop();
      return this.go(Infinity);
    }
    let wait = this.#wait(at);
    while (wait < FRAME && at + 1 < trace.head) wait += this.#wait(++at);
    this.timer = setTimeout(() => this.#step(at), Math.max(wait, FRAME));
    return this.go(at);
  }

  #wait(at) {
    const took = Math.max(0, this.trace.time(at + 1) - this.trace.time(at)) / Number(this.speed.value);
    return this.skip.checked ? Math.min(took, IDLE) : took;
  }
}
