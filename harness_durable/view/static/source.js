// Where the page gets a session from: the server, or the data within the file that it is.

export class Trouble extends Error {}

export class ServerSource {
  constructor() {
    this.live = true;
  }

  async #get(path) {
    let answer;
    try {
      answer = await fetch(path, { headers: { accept: "application/json" } });
    } catch {
      throw new Trouble("the viewer does not answer; start `harness-durable view` again");
    }
    const told = await answer.json().catch(() => ({ error: `the viewer answered with ${answer.status}` }));
    if (!answer.ok) throw new Trouble(told.error);
    return told;
  }

  #at(session, rest) {
    return this.#get(`api/s/${encodeURIComponent(session)}/${rest}`);
  }

  start() {
    return this.#get("api/start");
  }

  sessions(offset) {
    return this.#get(`api/sessions?offset=${offset}`);
  }

  /** Calls `tell` with how far the log is read, while that is all that there is to say. */
  async rows(session, before, limit, tell = () => {}) {
    let page = await this.#at(session, `rows?before=${before}&limit=${limit}`);
    while (page.of) {
      tell(page.reading / page.of);
      page = await this.#at(session, `rows?before=${before}&limit=${limit}&again=1`);
    }
    return page;
  }

  detail(session, item) {
    return this.#at(session, `detail/${item}`);
  }

  said(session, items) {
    return this.#at(session, `said?items=${items.join(",")}`);
  }

  body(session, seq, name, at) {
    return this.#at(session, `body/${seq}/${encodeURIComponent(name)}?at=${at}`);
  }

  changes(session, seq, number) {
    return this.#at(session, `changes/${seq}/${number}`);
  }

  find(session, words, before) {
    return this.#at(session, `find?q=${encodeURIComponent(words)}&before=${before}`);
  }

  /** Calls back with what happens after `after`. Gives what ends it. */
  follow(session, after, tell) {
    const stream = new EventSource(`api/s/${encodeURIComponent(session)}/live?after=${after}`);
    for (const kind of ["rows", "progress", "trouble"]) {
      stream.addEventListener(kind, (event) => tell(kind, JSON.parse(event.data)));
    }
    stream.addEventListener("open", () => tell("open", {}));
    stream.addEventListener("error", () => tell("lost", {}));
    return () => stream.close();
  }
}

/** The same, from a file. Everything is there already. */
export class FileSource {
  constructor(data) {
    this.data = data;
    this.live = false;
  }

  async start() {
    return { session: this.data.session, lost: this.data.notes };
  }

  async sessions() {
    return { sessions: [], total: 0 };
  }

  async rows() {
    return { rows: this.data.rows, after: 0, upto: this.data.head, head: this.data.head, damage: this.data.damage };
  }

  async detail(_session, item) {
    const found = this.data.details[item];
    if (!found) throw new Trouble("this file has no details of it");
    return found;
  }

  async said(_session, items) {
    return Object.fromEntries(items.map((item) => [item, this.data.said[item] || ""]));
  }

  async body() {
    throw new Trouble("the rest of this text is not in the file");
  }

  async changes(_session, seq, number) {
    const found = this.data.changes[`${seq}/${number}`];
    if (!found) throw new Trouble("what changed within files is not in this file");
    return found;
  }

  async find(_session, words) {
    const wanted = words.toLowerCase();
    const hit = (text) => text.toLowerCase().includes(wanted);
    const seqs = new Set();
    for (const row of this.data.rows) if (hit(`${row[10]} ${row[11]} ${row[12].join(" ")}`)) seqs.add(row[0]);
    for (const detail of Object.values(this.data.details)) {
      for (const text of detail.texts) if (!/^m\d+$/.test(text.name) && hit(text.text)) seqs.add(text.seq);
    }
    return { seqs: [...seqs].sort((a, b) => b - a), before: 0 };
  }

  follow() {
    return () => {};
  }
}
