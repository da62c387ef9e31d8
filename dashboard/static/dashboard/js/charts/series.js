// Points of series in the page: lines that stay below LIMIT points however many arrive, and the job's store of lines.
export const LIMIT = 2000;

// A line of fewer points, all its columns alike: lowest and highest y of each bucket, in order; first, last and values that
// are no numbers survive.
export function thin(line, points) {
  const { x, y } = line;
  if (x.length <= points) return line;
  const buckets = Math.max(1, Math.floor(points / 2) - 1),
    size = (x.length - 2) / buckets,
    keep = [0];
  let odd = 0;
  for (let b = 0; b < buckets; b++) {
    const from = 1 + Math.floor(b * size),
      to = 1 + Math.floor((b + 1) * size);
    let low = -1,
      high = -1,
      bad = -1;
    for (let i = from; i < to; i++) {
      if (!Number.isFinite(y[i])) {
        if (bad < 0 && odd < 50) bad = i;
        continue;
      }
      if (low < 0 || y[i] < y[low]) low = i;
      if (high < 0 || y[i] > y[high]) high = i;
    }
    if (bad >= 0) odd++;
    keep.push(...[...new Set([low, high, bad])].filter((i) => i >= 0).sort((a, b) => a - b));
  }
  keep.push(x.length - 1);
  return Object.fromEntries(Object.entries(line).map(([name, column]) => [name, keep.map((i) => column[i])]));
}

// Points by x, with their values `y`, and when they were said, `t` (unix s), where x is not that.
export class Line {
  constructor() {
    this.x = [];
    this.y = [];
    this.t = [];
  }
  add(xs, ys, ts = xs) {
    for (let i = 0; i < xs.length; i++) {
      if (this.x.length && xs[i] <= this.x[this.x.length - 1]) continue;
      this.x.push(xs[i]);
      this.y.push(ys[i]);
      this.t.push(ts[i]);
      if (this.x.length > LIMIT) Object.assign(this, thin({ ...this }, LIMIT / 2));
    }
  }
  get last() {
    return this.y.at(-1);
  }
}

// First index whose value is at least v.
export function lower(x, v) {
  let a = 0,
    b = x.length;
  while (a < b) {
    const m = (a + b) >> 1;
    if (x[m] < v) a = m + 1;
    else b = m;
  }
  return a;
}

// Lines on one x axis, each value held until its line's next one: for sums and bands over replicas.
export function align(lines) {
  const x = [...new Set(Float64Array.from(lines.flatMap((l) => l.x)).sort())];
  const columns = lines.map((l) => {
    let i = -1;
    return x.map((v) => {
      while (i + 1 < l.x.length && l.x[i + 1] <= v) i++;
      return i < 0 ? null : l.y[i];
    });
  });
  return { x, columns };
}
export function total(lines) {
  if (lines.length === 1) return lines[0];
  const { x, columns } = align(lines),
    whole = { x: [], y: [] };
  x.forEach((v, i) => {
    if (columns.every((c) => c[i] != null)) {
      whole.x.push(v);
      whole.y.push(columns.reduce((sum, c) => sum + c[i], 0));
    }
  });
  return whole;
}
export function band(lines, names) {
  const { x, columns } = align(lines),
    low = [],
    mid = [],
    high = [];
  for (let i = 0; i < x.length; i++) {
    const v = columns
      .map((c) => c[i])
      .filter(Number.isFinite)
      .sort((a, b) => a - b);
    low.push(v[0] ?? null);
    mid.push(v[v.length >> 1] ?? null);
    high.push(v.at(-1) ?? null);
  }
  const worst = columns.reduce((w, c, i) => ((c.at(-1) ?? -Infinity) > (columns[w].at(-1) ?? -Infinity) ? i : w), 0);
  return [
    { label: `Highest (${names[worst]})`, s: 2, x, y: high },
    { label: `Median of ${lines.length}`, s: 1, x, y: mid },
    { label: "Lowest", s: 3, x, y: low },
  ];
}

// Of a line whose values were measured beside the training: on, off.
export const DASH = [5, 4];
const SAMPLES = 64,
  SEEN = 1 / 400;
// Whether one line hides the other: where both have a point, none of those looked at differs by what can be seen.
function hides(a, b) {
  const finite = a.y.filter(Number.isFinite),
    tolerance = (Math.max(...finite) - Math.min(...finite)) * SEEN;
  let met = 0;
  for (let n = 0; n < SAMPLES; n++) {
    const i = Math.round((n * (a.x.length - 1)) / (SAMPLES - 1)),
      k = lower(b.x, a.x[i]);
    if (b.x[k] !== a.x[i]) continue;
    if (Math.abs(a.y[i] - b.y[k]) > tolerance) return false;
    met++;
  }
  return met * 2 > SAMPLES;
}
// Lines that would hide each other take turns: each has its own dashes of one line in all their colours.
export function takeTurns(lines) {
  const groups = [];
  for (const line of lines) {
    const equal = groups.find(([first]) => String(first.dash) === String(line.dash) && hides(first, line));
    equal ? equal.push(line) : groups.push([line]);
  }
  for (const group of groups.filter((g) => g.length > 1))
    for (const [k, line] of group.entries()) {
      const [on, off] = line.dash ?? [8, 0];
      line.turns = [0, (on + off) * k, on, (on + off) * (group.length - k) - on];
    }
}

// Processes of an attempt that took each other's place are told apart by the part behind the point.
export const order = (attempt, incarnation = 0) => attempt + incarnation / 1e6;

const OF_GPU = ["utilisation", "memory_bytes", "temperature", "power_w"];
// What a node's sample says, by the name of its series.
export const readings = (sample) => [
  ...["cpu_percent", "memory_used_bytes", "network_sent_bps", "network_received_bps"].map((name) => [
    name,
    sample[name],
  ]),
  ...(sample.gpus ?? []).flatMap((gpu) => OF_GPU.map((name) => [`gpu${gpu.index}_${name}`, gpu[name]])),
];

// name → replica → order → Line.
export class Store {
  constructor() {
    this.names = new Map();
    this.means = new Set();
    this.show(0);
  }
  clear() {
    this.names.clear();
    this.means.clear();
    this.known = null;
  }
  // What a replica tells. A leader may speak for others: its `step_time_ms/worker 1` is worker 1's, and what it calls
  // `step_time_ms` alone the mean of theirs, which is shown nowhere beside them.
  tell(name, replica, attempt, xs, ys, ts) {
    const [, own, role, index] = /^(.+)\/(\w+) (\d+)$/.exec(name) ?? [];
    if (!own) return this.add(name, replica, attempt, xs, ys, ts);
    this.means.add(`${own} ${replica}`);
    this.add(own, `${role}:${index}`, attempt, xs, ys, ts);
  }
  add(name, replica, attempt, xs, ys, ts) {
    const replicas = this.names.get(name) ?? this.names.set(name, new Map()).get(name);
    const attempts = replicas.get(replica) ?? replicas.set(replica, new Map()).get(replica);
    (attempts.get(attempt) ?? attempts.set(attempt, new Line()).get(attempt)).add(xs, ys, ts);
    this.known = null;
  }
  // Lets go of what lies before x, for series by time that only show the recent past.
  forget(x) {
    for (const replicas of this.names.values())
      for (const attempts of replicas.values())
        for (const line of attempts.values()) {
          const n = lower(line.x, x);
          if (n > 60) {
            line.x.splice(0, n);
            line.y.splice(0, n);
            line.t.splice(0, n);
          }
        }
  }
  replicas(name) {
    return [...(this.names.get(name)?.keys() ?? [])].filter((r) => !this.means.has(`${name} ${r}`));
  }
  // A replica's attempts as lines, each with the attempt it begins with. What a later one did again takes the place of what
  // the earlier one had done, from a joint on; one that begins anew is a line of its own.
  lines(name, replica) {
    const found = [];
    const parts = [...(this.names.get(name)?.get(replica) ?? [])].sort((a, b) => a[0] - b[0]);
    for (const [n, { x, y, t }] of parts) {
      const { run } = this.attempts.get(Math.trunc(n)) ?? {},
        last = found.at(-1);
      if (!x.length || !run) continue;
      if (last?.attempt === run) {
        const cut = lower(last.x, x[0]);
        last.x = [...last.x.slice(0, cut), ...x];
        last.y = [...last.y.slice(0, cut), ...y];
        last.t = [...last.t.slice(0, cut), ...t];
        last.joints = [...last.joints.filter((k) => k < cut), cut];
      } else found.push({ attempt: run, x, y, t, joints: [] });
    }
    return found;
  }
  // number → {x: its lowest, t: its first moment, run: the attempt that its line begins with}, of the attempts that are
  // shown.
  get attempts() {
    if (this.known) return this.known;
    const first = new Map();
    for (const replicas of this.names.values())
      for (const attempts of replicas.values())
        for (const [each, { x, t }] of attempts) {
          const n = Math.trunc(each),
            had = first.get(n) ?? { x: Infinity, t: Infinity };
          if (x.length) first.set(n, { x: Math.min(had.x, x[0]), t: Math.min(had.t, t[0]) });
        }
    this.known = new Map();
    let run = 0;
    for (const n of [...first.keys()].sort((a, b) => a - b)) {
      if (this.only && n !== this.only) continue;
      if (!run || first.get(n).x <= first.get(run).x) run = n;
      this.known.set(n, { ...first.get(n), run });
    }
    return this.known;
  }
  // The moment of the first point that is shown, unix s.
  get begun() {
    return Math.min(...[...this.attempts.values()].map(({ t }) => t));
  }
  // Draws one attempt alone, or all (0).
  show(attempt) {
    this.only = attempt;
    this.known = null;
  }
  // The newest value of one replica, from its latest attempt.
  last(name, replica) {
    const attempts = !this.means.has(`${name} ${replica}`) && this.names.get(name)?.get(replica);
    return attempts ? attempts.get(Math.max(...attempts.keys())).last : undefined;
  }
  // Where attempts that go on begin, for the dashed lines.
  starts() {
    return [...this.attempts]
      .filter(([n, { run }]) => n !== run)
      .map(([n, { x, t }]) => ({ x, t, label: `Attempt ${n}` }));
  }
}
