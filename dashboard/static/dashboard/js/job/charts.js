// Which charts a job has: one card per measure, in a settled order, made as names turn up in the store.
import { asked, keep } from "../base/address.js";
import { $, $$, make } from "../base/dom.js";
import { replicaName } from "../base/format.js";
import { Chart, MOST_LINES } from "../charts/chart.js";
import { total } from "../charts/series.js";

const METRIC = 10;
export const STEP_PART = "step_part/";
const ACCURACY = /(^|_)(acc|accuracy)$/;
const KNOWN = {
  loss: { order: 0, title: "Loss", tools: "log smooth table" },
  examples_per_s: {
    order: 20,
    title: "Examples per second",
    unit: "all replicas",
    format: "rate",
    zero: true,
    tools: "smooth table",
    sum: true,
  },
  step_time_ms: { order: 21, title: "Step time", unit: "ms", format: "ms", tools: "smooth table" },
  steps_per_s: { order: 22, title: "Steps per second", format: "rate", zero: true, tools: "smooth table" },
  ...Object.fromEntries(
    ["staleness", "staleness_max", "bubble"].map((name) => [name, { order: 24, tools: "smooth table" }]),
  ),
  learning_rate: { order: 23, title: "Learning rate", tools: "log table", sparse: true },
};
const NODE = {
  cpu_percent: { order: 40, title: "CPU", unit: "%, per node", format: "percent", zero: true },
  memory_used_bytes: { order: 41, title: "Memory", unit: "per node", format: "bytes", zero: true },
  utilisation: { order: 42, title: "GPU load", unit: "%, per GPU", format: "percent", zero: true },
  memory_bytes: { order: 43, title: "GPU memory", unit: "per GPU", format: "bytes", zero: true },
};
const words = (name) => {
  const t = name.replaceAll("_", " ");
  return t.charAt(0).toUpperCase() + t.slice(1);
};
const base = (name) => (name.startsWith("val_") ? name.slice(4) : name);
const gpu = (name) => /^gpu(\d+)_(utilisation|memory_bytes)$/.exec(name);

function remember(key, tool, on) {
  if (tool === "table") return;
  const had = new Set((asked.get(tool) ?? "").split(",").filter(Boolean));
  on ? had.add(key) : had.delete(key);
  keep(tool, [...had].join(","));
}

// store: training series by step · load: node series by time · placeOf(replica) · nodeNames: Map of id → name
// coming(): whether metrics follow with the end of an epoch · early(): whether first numbers may follow at any moment
// offered(): whether the page offers to draw printed numbers
export function jobCharts({ store, load, placeOf, nodeNames, coming, early, offered }) {
  const training = $("[data-charts]"),
    machines = $("[data-load]"),
    slot = make("div", { class: "p-slot", "data-order": METRIC }, "Metrics follow with the end of the first epoch."),
    template = $("#chart-card"),
    cards = new Map();
  let settled = false;
  const color = (place) => (place % 8) + 1;

  // One line for each replica and, where an attempt began anew, one more, which its name tells.
  function trained(name, known) {
    const factor = ACCURACY.test(name) ? 100 : 1,
      title = known.title ?? words(name);
    const read = (n) =>
      store
        .replicas(n)
        .sort((a, b) => placeOf(a) - placeOf(b))
        .flatMap((r) =>
          store.lines(n, r).map((l) => ({ ...l, r, y: factor === 1 ? l.y : l.y.map((v) => v * factor) })),
        );
    const all = { own: read(name), validated: known.sum ? [] : read(`val_${name}`) },
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
    if (known.sum)
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
        sparse: known.sparse,
      })),
      ...validated.map((l) => ({
        ...l,
        label: named(several(validated) ? `Validation ${replicaName(l.r)}` : "Validation", l),
        s: several(validated) ? shade(l, placeOf(l.r), store.replicas(name).length) : shade(l, 1, 2),
        dash: true,
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
  // Whenever a card comes, its place is the same.
  function put(el, box) {
    const { order, chart } = el.dataset,
      next = [...box.children].find(({ dataset: d }) => +d.order > +order || (+d.order === +order && d.chart > chart));
    next ? next.before(el) : box.append(el);
  }
  function card(key, title, known, x, read, starts) {
    if (cards.has(key)) return;
    const el = template.content.firstElementChild.cloneNode(true),
      id = `c-${cards.size}`,
      tools = known.tools ?? "table";
    el.dataset.chart = key;
    el.dataset.order = known.order;
    el.setAttribute("aria-labelledby", id);
    $("h3", el).id = id;
    $("h3", el).textContent = $("h3", el).title = title;
    $(".unit", el).textContent = known.unit ?? "";
    $("[data-tool=table]", el).setAttribute("aria-label", `Show ${title} as a table`);
    $(".ty-legend", el).setAttribute("aria-label", `Series of ${title}`);
    for (const b of $$("[data-tool]", el)) if (!tools.includes(b.dataset.tool)) b.remove();
    put(el, x === "step" ? training : machines);
    const chart = new Chart(el, {
      key,
      x,
      format: known.format ?? "plain",
      zero: known.zero,
      sync: x,
      read,
      starts,
      csv: x === "step" && (() => [{ job: +$("[data-job]").dataset.job, names: [key, `val_${key}`] }]),
      changed: (tool, on) => remember(key, tool, on),
    });
    cards.set(key, chart);
    for (const tool of ["log", "smooth"])
      if ((asked.get(tool) ?? "").split(",").includes(key) && chart.has(tool)) chart.set(tool, true);
  }
  return {
    // New names get their card; the rest is drawn where it is seen.
    draw() {
      for (const name of store.names.keys()) {
        if (name.startsWith(STEP_PART)) continue; // the panel below shows them
        const key = base(name),
          known = KNOWN[key] ?? {
            order: METRIC,
            unit: ACCURACY.test(key) ? "%" : "",
            format: ACCURACY.test(key) ? "percent" : "plain",
            tools: ACCURACY.test(key) ? "smooth table" : "log smooth table",
          };
        card(
          key,
          known.title ?? words(key),
          known,
          "step",
          () => trained(key, known),
          () => store.starts(),
        );
      }
      for (const name of load.names.keys()) {
        const kind = gpu(name)?.[2] ?? name;
        if (NODE[kind]) card(`node ${kind}`, NODE[kind].title, NODE[kind], "clock", () => loaded(kind));
      }
      const first = $(".ty-chart", training);
      $("[data-charts-none]").hidden = !!first;
      machines.hidden = !machines.firstChild || (!first && early());
      if (!first && (offered() || (!settled && !early()))) training.classList.remove("is-ahead");
      settled = true;
      if (!first || !coming() || $(`.ty-chart[data-order="${METRIC}"]`, training)) slot.remove();
      else if (!slot.parentNode) put(slot, training);
      for (const c of cards.values()) c.draw();
    },
  };
}
