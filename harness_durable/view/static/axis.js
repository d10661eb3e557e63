// Time on a line of pixels. Idle time can be cut: each long gap then takes the same few pixels.

const CUT = 34;

/** Busy stretches [from, to] in ms, merged; `slack` is what still counts as no gap. */
export function stretches(intervals, slack) {
  const sorted = intervals.toSorted((a, b) => a[0] - b[0]);
  const merged = [];
  for (const [from, to] of sorted) {
    const last = merged[merged.length - 1];
    if (last && from - last[1] <= slack) last[1] = Math.max(last[1], to);
    else merged.push([from, to]);
  }
  return merged;
}

/** Gives `x(ms)`, `ms(x)` and the gaps [{from, to, x}] for intervals drawn on `width` pixels. */
export function axis(intervals, width, cut) {
  if (!intervals.length) return { x: () => 0, ms: () => 0, gaps: [], first: 0, last: 0 };
  let first = Infinity;
  let last = -Infinity;
  let busy = 0;
  for (const [from, to] of intervals) {
    first = Math.min(first, from);
    last = Math.max(last, to);
    busy += to - from;
  }
  const slack = cut ? Math.max(3000, Math.min((last - first) * 0.15, busy * 0.5)) : Infinity;
  let parts = stretches(intervals, slack);
  if ((parts.length - 1) * CUT > width * 0.4) parts = [[first, last]];
  const total = parts.reduce((sum, [from, to]) => sum + (to - from), 0) || 1;
  const scale = Math.max(1, width - (parts.length - 1) * CUT) / total;
  const placed = [];
  let at = 0;
  for (const [from, to] of parts) {
    placed.push({ from, to, at });
    at += (to - from) * scale + CUT;
  }
  const x = (ms) => {
    let low = 0;
    let high = placed.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (placed[middle].from <= ms) low = middle;
      else high = middle - 1;
    }
    const part = placed[low];
    const over = ms - part.to;
    if (over <= 0 || low === placed.length - 1) return part.at + Math.max(0, ms - part.from) * scale;
    const gap = placed[low + 1].from - part.to;
    return part.at + (part.to - part.from) * scale + CUT * Math.min(1, over / gap);
  };
  const gaps = placed.slice(1).map((part, n) => ({ from: placed[n].to, to: part.from, x: part.at - CUT, width: CUT }));
  const ms = (px) => {
    const part = placed.findLast((one) => one.at <= px) || placed[0];
    return part.from + Math.min(part.to - part.from, Math.max(0, px - part.at) / scale);
  };
  return { x, ms, gaps, first, last };
}
