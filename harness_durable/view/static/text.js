// Text of an agent made harmless and readable. Nothing here touches the page: it is only ever set as text.

const HOSTILE = new RegExp(
  "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u180e\\u200b\\u200e\\u200f\\u2028-\\u202e" +
    "\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb]|[\\ud800-\\udbff](?![\\udc00-\\udfff])|(?<![\\ud800-\\udbff])[\\udc00-\\udfff]" +
    "|\\udb40[\\udc00-\\udc7f]",
  "g",
);

/** What could steer a reader's eye, or hide, becomes a visible mark. */
export function visible(text) {
  return text.replace(HOSTILE, (found) => {
    const code = found.codePointAt(0);
    return code < 0x20 ? String.fromCharCode(0x2400 + code) : `[U+${code.toString(16).toUpperCase().padStart(4, "0")}]`;
  });
}

/** Milliseconds as people say them. */
export function span(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.round((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.round((s % 86400) / 3600)} h`;
}

/** A time of day, on the clock of whoever looks. */
export function clock(ms, fine = false) {
  const d = new Date(ms);
  const two = (n) => String(n).padStart(2, "0");
  const whole = `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
  return fine ? `${whole}.${String(d.getMilliseconds()).padStart(3, "0")}` : whole;
}

export function day(ms) {
  const d = new Date(ms);
  return `${d.getFullYear()}-${String(d.getMonth() + 1).padStart(2, "0")}-${String(d.getDate()).padStart(2, "0")}`;
}

export function ago(ms, now) {
  return now - ms < 1000 ? "now" : `${span(now - ms)} ago`;
}

export function many(count, one, more = `${one}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : more}`;
}

export function bytes(size) {
  if (size < 1000) return `${size} characters`;
  return size < 1e6 ? `${(size / 1000).toFixed(0)} k characters` : `${(size / 1e6).toFixed(1)} M characters`;
}

/** An element with a class, text and children. The only way in which this page makes elements. */
export function el(tag, options = {}, ...children) {
  const made = document.createElement(tag);
  const { text, cls, ...rest } = options;
  if (cls) made.className = cls;
  if (text !== undefined) made.textContent = visible(String(text));
  for (const [name, value] of Object.entries(rest)) {
    if (name === "on") for (const [event, act] of Object.entries(value)) made.addEventListener(event, act);
    else if (value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}
