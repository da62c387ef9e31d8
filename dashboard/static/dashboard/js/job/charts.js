// Which charts a job has: one card per measure, in a settled order, made as names turn up in the store.
import { $, make, outdated } from "../base/dom.js";
import { replicaName } from "../base/format.js";
import { placed } from "../charts/axis.js";
import { addChart, put } from "../charts/card.js";
import { MOST_LINES } from "../charts/chart.js";
import { isMetric, known, measureOf } from "../charts/measures.js";
import { DASH, total } from "../charts/series.js";

export const STEP_PART = "step_part/";
const OF_NODE = { tools: "table", x: "clock", sync: "load" };
const NODE = {
  cpu_percent: { ...OF_NODE, order: 40, title: "CPU", unit: "%, per node", format: "percent", zero: true },
  memory_used_bytes: { ...OF_NODE, order: 41, title: "Memory", unit: "per node", format: "bytes", zero: true },
  utilisation: { ...OF_NODE, order: 42, title: "GPU load", unit: "%, per GPU", format: "percent", zero: true },
  memory_bytes: { ...OF_NODE, order: 43, title: "GPU memory", unit: "per GPU", format: "bytes", zero: true },
};
const gpu = (name) => /^gpu(\d+)_(utilisation|memory_bytes)$/.exec(name);

// store: training series by step · load: node series by time · placeOf(replica) · nodeNames: Map of id → name
// told(): the job, null until it was told · axis: by what training is drawn (`chooser`)
// coming(): whether metrics follow with the end of an epoch · early(): whether first numbers may follow at any moment
// offered(): whether the page offers to draw printed numbers
export function jobCharts({ store, load, placeOf, nodeNames, told, axis, coming, early, offered }) {
  const training = $("[data-charts]"),
    machines = $("[data-load]"),
    slot = make(
      "div",
      { class: "p-slot", "data-order": known("").order },
      "Metrics follow with the end of the first epoch.",
    ),
    cards = new Map();
  let settled = false,
    by = "step",
    parts = null;
  const at = (steps, times) => placed(steps, times, by, told(), store.begun);
  // A line as it is drawn. By time, what passed between two attempts is a gap.
  function drawn(line, r, factor) {
    const x = [...at(line.x, line.t)],
      y = factor === 1 ? [...line.y] : line.y.map((v) => v * factor);
    if (by === "elapsed")
      for (const k of line.joints.toReversed()) {
        x.splice(k, 0, x[k]);
        y.splice(k, 0, null);
      }
    return { attempt: line.attempt, r, x, y };
  }
  const color = (place) => (place % 8) + 1;

  // One line for each replica and, where an attempt began anew, one more, which its name tells.
  function trained(name, { title, factor, sum, sparse }) {
    const read = (n) =>
      store
        .replicas(n)
        .sort((a, b) => placeOf(a) - placeOf(b))
        .flatMap((r) => store.lines(n, r).map((l) => drawn(l, r, factor)));
    const all = { own: read(name), validated: sum ? [] : read(`val_${name}`) },
      first = Math.min(...[...all.own, ...all.validated].map((l) => l.attempt));
    const runs = [...new Set([...all.own, ...all.validated].map((l) => l.attempt))].sort((a, b) => a - b);
    // What would not fit is left to the choice of one attempt; the latest stays.
    while (
      runs.length > 1 &&
      [...all.own, ...all.validated].filter((l) => runs.includes(l.attempt)).length > MOST_LINES
    )
      runs.shift();
    const own = all.own.filter((l) => runs.includes(l.attempt)),
      validated = all.validated.filter((l) => runs.includes(l.attempt)),
      several = (lines) => new Set(lines.map((l) => l.r)).size > 1,
      many = several(own);
    const named = (label, { attempt }) => (attempt === first ? label : `${label}, attempt ${attempt}`),
      shade = (l, place, width) => color(place + runs.indexOf(l.attempt) * width);
    if (sum)
      return runs.map((attempt) => {
        const parts = own.filter((l) => l.attempt === attempt);
        return {
          label: named(many ? "All replicas" : title, { attempt }),
          s: shade({ attempt }, 0, 2),
          ...total(parts),
        };
      });
    return [
      ...own.map((l) => ({
        ...l,
        label: named(many ? replicaName(l.r) : validated.length ? "Train" : title, l),
        s: many ? shade(l, placeOf(l.r), store.replicas(name).length) : shade(l, 0, 2),
        sparse,
      })),
      ...validated.map((l) => ({
        ...l,
        label: named(several(validated) ? `Validation ${replicaName(l.r)}` : "Validation", l),
        s: several(validated) ? shade(l, placeOf(l.r), store.replicas(name).length) : shade(l, 1, 2),
        dash: DASH,
        sparse: true,
      })),
    ];
  }
  function loaded(kind) {
    const lines = [];
    let place = 0;
    for (const name of load.names.keys())
      for (const node of load.replicas(name)) {
        const g = gpu(name);
        if (name === kind || (g && g[2] === kind))
          lines.push({
            key: [node, g ? +g[1] : 0],
            label: `${nodeNames.get(node) ?? node}${g ? ` GPU ${g[1]}` : ""}`,
            ...(load.lines(name, node)[0] ?? { x: [], y: [] }),
          });
      }
    return lines
      .sort((a, b) => a.label.localeCompare(b.label, undefined, { numeric: true }))
      .map((l) => ({ ...l, s: color(place++) }));
  }
  const card = (box, about) => {
    if (!cards.has(about.key)) cards.set(about.key, addChart(box, about));
  };
  function trainingCard(key, about) {
    card(training, {
      ...about,
      key,
      x: by,
      sync: "training",
      starts: () => store.starts().map(({ x, t, label }) => ({ x: at([x], [t])[0], label })),
      points: training.dataset.points,
    });
    cards.get(key).by(by);
  }
  // The script of their chart comes with the first parts of a step.
  function partsCard(charts) {
    parts ??= import("./step_parts.js").then(({ stepParts }) => {
      parts = stepParts(training, store, placeOf, (l) => drawn(l, "", 1));
      charts.draw();
    }, outdated);
    if (parts.key) trainingCard(parts.key, parts);
  }
  return {
    // New names get their card; the rest is drawn where it is seen.
    draw() {
      if (told()) by = axis.of([told()]);
      for (const name of store.names.keys()) {
        if (name.startsWith(STEP_PART)) {
          partsCard(this);
          continue;
        }
        const key = measureOf(name),
          about = known(key);
        trainingCard(key, {
          ...about,
          unit: about.sum ? "all replicas" : about.unit,
          read: () => trained(key, about),
          names: [key, `val_${key}`],
        });
      }
      for (const name of load.names.keys()) {
        const kind = gpu(name)?.[2] ?? name,
          about = NODE[kind];
        if (about) card(machines, { ...about, key: `node ${kind}`, read: () => loaded(kind) });
      }
      const first = $(".ty-chart", training);
      $("[data-charts-none]").hidden = !!first;
      machines.hidden = !machines.firstChild || (!first && early());
      if (!first && (offered() || (!settled && !early()))) training.classList.remove("is-ahead");
      settled = true;
      if (!first || !coming() || [...cards.values()].some((c) => isMetric(c.spec))) slot.remove();
      else if (!slot.parentNode) put(slot, training);
      for (const c of cards.values()) c.draw();
    },
  };
}
