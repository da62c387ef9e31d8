// Which charts a job has: one card per measure, in a settled order, made as names turn up in the store.
import { $, $$, make } from "../base/dom.js";
import { replicaName } from "../base/format.js";
import { Chart } from "../charts/chart.js";
import { total } from "../charts/series.js";

const METRIC = 10;
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
const VIEW = new URLSearchParams(location.search);
const words = (name) => {
  const t = name.replaceAll("_", " ");
  return t.charAt(0).toUpperCase() + t.slice(1);
};
const base = (name) => (name.startsWith("val_") ? name.slice(4) : name);
const gpu = (name) => /^gpu(\d+)_(utilisation|memory_bytes)$/.exec(name);

function remember(key, tool, on) {
  if (tool === "table") return;
  const had = new Set((VIEW.get(tool) ?? "").split(",").filter(Boolean));
  on ? had.add(key) : had.delete(key);
  had.size ? VIEW.set(tool, [...had].join(",")) : VIEW.delete(tool);
  history.replaceState(null, "", `${location.pathname}${VIEW.size ? `?${VIEW}` : ""}${location.hash}`);
}

// store: training series by step · load: node series by time · placeOf(replica) · nodeNames: Map of id → name
// coming(): whether metrics follow with the end of an epoch · early(): whether first numbers may follow at any moment
export function jobCharts({ store, load, placeOf, nodeNames, coming, early }) {
  const training = $("[data-charts]"),
    machines = $("[data-load]"),
    slot = make("div", { class: "p-slot", "data-order": METRIC }, "Metrics follow with the end of the first epoch."),
    template = $("#chart-card"),
    cards = new Map();
  let settled = false;
  const color = (place) => (place % 8) + 1;

  function trained(name, known) {
    const order = (a, b) => placeOf(a) - placeOf(b),
      replicas = store.replicas(name).sort(order),
      factor = ACCURACY.test(name) ? 100 : 1,
      title = known.title ?? words(name);
    const line = (n, r) => {
      const l = store.line(n, r);
      return factor === 1 ? l : { x: l.x, y: l.y.map((v) => v * factor) };
    };
    if (known.sum)
      return replicas.length
        ? [{ label: replicas.length > 1 ? "All replicas" : title, s: 1, ...total(replicas.map((r) => line(name, r))) }]
        : [];
    const many = replicas.length > 1,
      validated = store.replicas(`val_${name}`).sort(order);
    const own = replicas.map((r) => ({
      label: many ? replicaName(r) : validated.length ? "Train" : title,
      s: many ? color(placeOf(r)) : 1,
      sparse: known.sparse,
      ...line(name, r),
    }));
    return [
      ...own,
      ...validated.map((r) => ({
        label: validated.length > 1 ? `Validation ${replicaName(r)}` : "Validation",
        s: validated.length > 1 ? color(placeOf(r)) : 2,
        dash: true,
        sparse: true,
        ...line(`val_${name}`, r),
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
            ...load.line(name, node),
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
      changed: (tool, on) => remember(key, tool, on),
    });
    cards.set(key, chart);
    for (const tool of ["log", "smooth"])
      if ((VIEW.get(tool) ?? "").split(",").includes(key) && chart.has(tool)) chart.set(tool, true);
  }
  return {
    // New names get their card; the rest is drawn where it is seen.
    draw() {
      for (const name of store.names.keys()) {
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
      if (!settled && !first && !early()) training.classList.remove("is-ahead");
      settled = true;
      if (!first || !coming() || $(`.ty-chart[data-order="${METRIC}"]`, training)) slot.remove();
      else if (!slot.parentNode) put(slot, training);
      for (const c of cards.values()) c.draw();
    },
  };
}
