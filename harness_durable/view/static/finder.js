// Find: what the page does not hold, the source looks for; the page goes from place to place.

export class Finder {
  /** `go(seq)` shows an event; `session()` says in which session. */
  constructor({ form, input, note }, source, { session, go }) {
    Object.assign(this, { input, note, source, session, go });
    this.clear();
    form.addEventListener("submit", (event) => event.preventDefault());
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") {
        event.preventDefault();
        if (input.value === this.words) this.step(event.shiftKey ? -1 : 1);
        else this.start();
      }
    });
    input.addEventListener("input", () => {
      if (!input.value) this.clear();
    });
  }

  clear() {
    Object.assign(this, { words: "", seqs: [], at: -1, before: 0 });
    this.note.textContent = "";
  }

  /** Looks from the end backwards, and goes to the first place as soon as there is one. */
  async start() {
    this.clear();
    const words = this.input.value;
    if (!words) return;
    this.words = words;
    this.note.textContent = "…";
    try {
      do {
        const found = await this.source.find(this.session(), words, this.before);
        if (this.words !== words) return;
        this.seqs.push(...found.seqs);
        this.before = found.before;
        if (this.at < 0 && this.seqs.length) this.step(1);
        this.#say();
      } while (this.before && this.seqs.length < 1000);
    } catch (error) {
      this.note.textContent = error.message;
    }
  }

  step(by) {
    if (!this.seqs.length) return;
    this.at = (this.at + by + this.seqs.length) % this.seqs.length;
    this.go(this.seqs[this.at]);
    this.#say();
  }

  #say() {
    const more = this.before ? "+" : "";
    this.note.textContent = this.seqs.length ? `${this.at + 1} of ${this.seqs.length}${more}` : this.before ? "…" : "nowhere";
  }
}
