// Jobs side by side: one card per series, a line per job. While a job runs, its curves and the table are fetched again as
// the list of jobs hears of it. `data-compare` names the jobs; where that changes, as in a strategy test, so do the curves.
import { keep } from "./base/address.js";
import { $, outdated } from "./base/dom.js";
import { num } from "./base/format.js";
import { painter } from "./base/live.js";
import { refresher } from "./base/parts.js";
import { feed } from "./base/socket.js";
import { copy } from "./base/toast.js";
import { chooser, knows, placed } from "./charts/axis.js";
import { addChart } from "./charts/card.js";
import { known, measureOf, validates } from "./charts/measures.js";

const AGAIN_MS = 3000,
  FEW = 4,
  SHORT = 6,
  box = $("[data-compare]"),
  cards = new Map();
let jobs = [],
  by = "step",
  timer = 0;

// What all names begin with, to the end of a word, where that is much: of many jobs, each is known by the rest.
function shared(names) {
  let n = 0;
  while (names.every((name) => n < name.length && name[n] === names[0][n])) n++;
  const words = /^.*[-_\s/:]/.exec(names[0].slice(0, n))?.[0] ?? "";
  return names.length > FEW && words.length > SHORT ? words.length : 0;
}
function lines(name) {
  const { factor, sparse } = known(measureOf(name)),
    cut = shared(jobs.map((job) => job.name));
  return jobs
    .filter((job) => job.series[name])
    .map((job) => {
      const { steps, times, values } = job.series[name],
        begun = Math.min(...Object.values(job.series).map((s) => s.times[0]));
      return {
        label: `j-${job.id} ${cut ? "…" : ""}${job.name.slice(cut)}`,
        title: job.name,
        s: job.colour,
        dash: job.dash.length ? job.dash : undefined,
        x: placed(steps, times, by, job, begun),
        y: values.map((v) => num(v) * factor),
        sparse: sparse || validates(name),
      };
    });
}
function card(name) {
  const about = known(measureOf(name)),
    { title } = about;
  return addChart(box, {
    ...about,
    key: name,
    title: validates(name) ? `Validation ${title.charAt(0).toLowerCase()}${title.slice(1)}` : title,
    unit: about.sum ? "one replica" : about.unit,
    order: 2 * about.order + validates(name),
    x: by,
    every: true,
    sync: "compare",
    read: () => lines(name),
    points: box.dataset.points,
    names: [name],
  });
}
const paint = painter(() => {
  by = axis.of(jobs);
  for (const name of jobs.flatMap((job) => Object.keys(job.series)))
    if (!name.includes("/") && !cards.has(name)) cards.set(name, card(name));
  for (const c of cards.values()) {
    c.by(by);
    c.draw();
  }
  const silent = jobs.filter((job) => !knows(job, by) || !Object.keys(job.series).length);
  const note = $("#compare-note");
  note.hidden = !silent.length;
  note.textContent = silent.length
    ? `Not drawn by this axis, or without numbers: ${silent.map((job) => `j-${job.id}`).join(", ")}.`
    : "";
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
const axis = box && chooser($("[data-axis]"), paint);
if (box) {
  const mine = (id) => box.dataset.compare.split(",").includes(String(id)),
    renew = refresher(box.dataset.state, { pause: AGAIN_MS });
  const changed = () => {
    plan();
    renew();
  };
  feed("/ws/jobs/", {
    snapshot: changed,
    events: (events) => events.some((e) => e.kind === "job" && mine(e.job.id)) && changed(),
  });
  new MutationObserver(plan).observe(box, { attributeFilter: ["data-compare"] });
  load().catch(plan);
}
const link = $("[data-link]");
if (link)
  link.onclick = () => {
    keep("x", $("[data-axis]").value);
    copy(location.href, "Link copied", "Anyone who may see these jobs can open it.");
  };
const add = $("[data-add]");
if (add)
  add.onclick = () =>
    import("./base/palette.js").then(
      ({ search }) => search($("#add-job"), [], (hit) => location.assign(`${add.dataset.add}${hit.id}`)),
      outdated,
    );
