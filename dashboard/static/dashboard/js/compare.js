// Jobs side by side: one card per metric, a line per job. The address says by what the lines are drawn; while a job runs,
// its curves are fetched again as the list of jobs hears of it.
import { $, $$ } from "./base/dom.js";
import { num } from "./base/format.js";
import { painter } from "./base/live.js";
import { feed } from "./base/socket.js";
import { Chart } from "./charts/chart.js";

const AGAIN_MS = 3000,
  box = $("[data-compare]"),
  template = $("#chart-card"),
  asked = new URLSearchParams(location.search).get("x"),
  axis = ["epoch", "elapsed", "examples"].includes(asked) ? asked : "step",
  heads = $$(".p-compare-name"),
  cards = new Map();
let jobs = [],
  timer = 0;

const words = (name) => {
  const t = name.replaceAll("_", " ");
  return t.charAt(0).toUpperCase() + t.slice(1);
};
// A job's points by the chosen axis; none where it does not say what that needs.
function placed(job, { steps, times }, first) {
  if (axis === "elapsed") return times.map((t) => t - first);
  const by = { step: 1, epoch: job.steps_per_epoch && 1 / job.steps_per_epoch, examples: job.examples_per_step }[axis];
  return by ? steps.map((s) => s * by) : [];
}
function lines(name) {
  return jobs.flatMap((job, place) => {
    const own = job.series[name];
    if (!own) return [];
    const first = Math.min(...Object.values(job.series).map((s) => s.times[0]));
    const x = placed(job, own, first);
    return [
      { label: `j-${job.id} ${heads[place]?.textContent.trim() ?? ""}`, s: (place % 8) + 1, x, y: own.values.map(num) },
    ];
  });
}
const rank = (name) => ["loss", "val_loss"].indexOf(name) + 1 || 9;
function card(name) {
  const el = template.content.firstElementChild.cloneNode(true),
    id = `c-${cards.size}`;
  el.setAttribute("aria-labelledby", id);
  Object.assign($("h3", el), { id, textContent: words(name), title: words(name) });
  $(".ty-legend", el).setAttribute("aria-label", `Jobs in ${words(name)}`);
  box.append(el);
  const csv = () => jobs.filter((j) => j.series[name]).map((j) => ({ job: j.id, names: [name] }));
  cards.set(
    name,
    new Chart(el, { key: name, x: axis, every: true, format: "plain", sync: "compare", csv, read: () => lines(name) }),
  );
}
const paint = painter(() => {
  const names = [...new Set(jobs.flatMap((j) => Object.keys(j.series)))].filter((n) => !n.includes("/"));
  for (const name of names.sort((a, b) => rank(a) - rank(b) || a.localeCompare(b))) if (!cards.has(name)) card(name);
  for (const c of cards.values()) c.draw();
  const silent = jobs.filter((j) => !Object.values(j.series).some((s) => placed(j, s, 0).length));
  const said = silent.length
    ? `Not drawn by this axis, or without numbers: ${silent.map((j) => `j-${j.id}`).join(", ")}.`
    : "";
  $("#compare-note").textContent = said;
});
async function load() {
  timer = 0;
  const answer = await fetch(box.dataset.curves, { headers: { Accept: "application/json" } });
  if (!answer.ok) return plan();
  ({ jobs } = await answer.json());
  paint();
}
const plan = () => {
  if (!timer) timer = setTimeout(() => load().catch(plan), AGAIN_MS);
};
if (box) {
  for (const a of $$("#compare-x a")) if (a.dataset.x === axis) a.setAttribute("aria-current", "true");
  const mine = new Set(box.dataset.compare.split(",").map(Number));
  feed("/ws/jobs/", {
    snapshot: plan,
    events: (events) => events.some((e) => e.kind === "job" && mine.has(e.job.id)) && plan(),
  });
  load().catch(plan);
}
