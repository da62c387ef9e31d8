// The job page, alive: one socket brings a snapshot, then what is newer. Numbers travel in the events; when the state
// changes, the printed parts are fetched again.
import { keep } from "../base/address.js";
import { $, $$, make, outdated } from "../base/dom.js";
import { bytes, clock, figure, group, localTimes, num, percent, replicaName, span } from "../base/format.js";
import { painter, say, setText } from "../base/live.js";
import { refresher, swapAll } from "../base/parts.js";
import { feed } from "../base/socket.js";
import { chooser } from "../charts/axis.js";
import { order, readings, Store } from "../charts/series.js";
import { jobCharts, STEP_PART } from "./charts.js";
import { gantt } from "./gantt.js";

const RECENT_S = 900,
  AFTER_S = 10,
  QUIET_MS = 60_000,
  MOST_TOLD = 4,
  PRINTED = ["replicas", "artifact", "files", "checkpoints", "event"],
  SHARE = /^(val_)?(acc|accuracy)$/;

const page = $("[data-job]"),
  isRecipe = page.dataset.kind === "recipe",
  store = new Store(),
  load = new Store(),
  nodeNames = new Map();
let job = null,
  cursors = {},
  logEnds = {},
  shownState = "",
  beats = {};
const rows = () => $$("#replicas [data-replica]"),
  metricNames = () => Object.keys(job.metrics).filter((n) => n !== "loss" && n !== "val_loss");
const places = new Map();
function readRows() {
  for (const row of rows()) {
    places.set(row.dataset.replica, +row.dataset.place);
    const node = $("td a[href*='/nodes/']", row);
    if (node) nodeNames.set(node.pathname.split("/").filter(Boolean).at(-1), node.textContent);
  }
}
const placeOf = (replica) => places.get(replica) ?? (+replica.split(":")[1] || 0);
readRows();
// One TF_CONFIG at a time, see `app.js`: that of the chosen replica, also after the part was fetched again.
const choice = () => $("#tf-replica");
function showTfConfig(of) {
  if ([...(choice()?.options ?? [])].some((o) => o.value === of)) choice().value = of;
  choice()?.dispatchEvent(new Event("input", { bubbles: true }));
}
showTfConfig();
// A job that tells no numbers may print some. The server is asked after 4 lines, 8, 16 and so on, until it offers them.
const offered = () => !!$("#job-printed form");
let lines = 0,
  asksAt = 4;
function lookForPrinted(text) {
  lines += text.split("\n").length - 1;
  if (isRecipe || lines < asksAt || store.names.size || offered()) return;
  asksAt = 2 * lines;
  renew();
}
// Whether what was not heard of yet may still be on its way.
const early = () => !job || (!job.ended_at && !(Date.now() - Date.parse(job.started_at) > QUIET_MS));
// The log's script comes when there is something to tell it, behind the charts. What is told meanwhile waits, in order.
let viewer;
function log(tell) {
  viewer ??= import("./log.js").then(({ logViewer }) => logViewer($(".ty-log"), placeOf));
  viewer.then(tell, outdated);
}
const charts = jobCharts({
  store,
  load,
  placeOf,
  nodeNames,
  told: () => job,
  axis: chooser($("[data-axis]"), () => paint()),
  early,
  offered,
  coming: () => isRecipe && job && !job.ended_at && (job.epoch < 2 || early() || metricNames().length > 0),
});
const paint = painter(() => {
  charts.draw();
  figures();
  processes();
  gantt(renew);
});
const renew = refresher(page.dataset.state, {
  put(parts) {
    const chosen = choice()?.value,
      fresh = swapAll(parts);
    if (!fresh.length) return;
    readRows();
    showTfConfig(chosen);
    paint();
    log((l) => l.replicas(rows().map((r) => r.dataset.replica)));
    if (!fresh.some((part) => part.id === "job-head")) return;
    for (const name of ["stop", "pause"]) if (!$(`#${name}-button`)) $(`#${name}`)?.close();
  },
  pause: 120,
});

function applyJob(next) {
  if (job && next.revision < job.revision) return;
  const state = [next.status, next.attempt, next.cause, next.reason, next.waiting_for].join("|");
  if (shownState && state !== shownState) {
    renew();
    if (next.status !== job?.status) say(`${next.name} is ${next.status}`);
  }
  shownState = state;
  job = next;
  attempts(job.attempt);
}
function addPoints(event) {
  if (Object.keys(event.series).some((name) => name.startsWith(STEP_PART))) renew();
  for (const [name, s] of Object.entries(event.series))
    store.tell(name, event.replica, order(event.attempt, event.incarnation), s.steps, s.values.map(num), s.times);
}
// The load of its nodes while the job was there; what they do before and after is not this job's.
function addLoad(name, node, { times, values }) {
  const from = Date.parse(job.created_at) / 1000,
    to = job.ended_at ? Date.parse(job.ended_at) / 1000 + AFTER_S : Infinity;
  const own = times.flatMap((t, i) => (t >= from && t <= to ? [i] : []));
  if (own.length)
    load.add(
      name,
      node,
      1,
      own.map((i) => times[i]),
      own.map((i) => num(values[i])),
    );
}
function addSample(node, sample) {
  for (const [name, v] of readings(sample)) load.add(name, node, 1, [sample.at], [num(v)]);
  load.forget(sample.at - RECENT_S);
}
// One attempt, or all of them as one curve and one log (0); the address holds the choice.
const choices = $$("[data-attempt]"),
  feedPath = () => `/ws/jobs/${page.dataset.job}/${chosen ? `attempts/${chosen}/` : ""}`;
let chosen = +choices[0].value;
function attempts(count) {
  for (const choice of choices) {
    for (let n = choice.options.length; n <= count; n++) choice.append(make("option", { value: n }, `Attempt ${n}`));
    choice.hidden = count < 2;
    choice.value = chosen || "";
  }
}
function choose(attempt) {
  chosen = attempt;
  keep("attempt", attempt || "");
  attempts(job.attempt);
  store.show(chosen);
  for (const a of $$("[data-log-files] a")) {
    const url = new URL(a.href);
    chosen ? url.searchParams.set("attempt", chosen) : url.searchParams.delete("attempt");
    a.href = url;
  }
  feedOfJob.again(feedPath());
}
for (const choice of choices) choice.addEventListener("change", () => choose(+choice.value));
store.show(chosen);
const feedOfJob = feed(feedPath(), {
  snapshot(data) {
    const printed = $("#event-list li:last-child")?.dataset.event,
      stale = job || data.job.revision !== +page.dataset.revision || +printed !== data.events.at(-1)?.id;
    applyJob(data.job);
    store.clear();
    load.clear();
    for (const [name, views] of Object.entries(data.series))
      for (const v of views)
        store.tell(name, v.replica, order(v.attempt, v.incarnation), v.steps, v.values.map(num), v.times);
    for (const [node, series] of Object.entries(data.samples))
      for (const [name, s] of Object.entries(series)) addLoad(name, node, s);
    cursors = Object.fromEntries(Object.entries(data.cursors).map(([id, c]) => [id, c.trainer ?? 0]));
    logEnds = { ...data.log_ends };
    log((l) => l.reset(data.log));
    if (stale) renew();
    paint();
  },
  events(events) {
    for (const e of events) {
      if (e.kind === "job") applyJob(e.job);
      if (e.kind === "progress") applyJob({ ...job, ...e.job });
      if (PRINTED.includes(e.kind)) renew();
      if (e.kind === "points") {
        const have = cursors[e.replica_id] ?? 0;
        if (e.start > have) return feedOfJob.again();
        if (e.end > have) {
          cursors[e.replica_id] = e.end;
          addPoints(e);
        }
      }
      if (e.kind === "log") {
        const have = logEnds[e.replica_id] ?? 0;
        if (e.start > have) return feedOfJob.again();
        if (e.end > have) {
          logEnds[e.replica_id] = e.end;
          if (!chosen || e.attempt === chosen) log((l) => l.add(e));
          addPoints(e);
          lookForPrinted(e.text);
        }
      }
      if (e.kind === "sample" && !job.ended_at) {
        addSample(e.node_id, e.sample);
        for (const b of e.replicas ?? []) beats[b.replica_id] = b;
      }
    }
    paint();
  },
});

const put = (key, text) => {
  for (const el of $$(`#job-run [data-live="${key}"]`)) setText(el, text);
};
function figures() {
  if (!job) return;
  const all = (name) =>
    rows()
      .map((r) => [r.dataset.replica, store.last(name, r.dataset.replica)])
      .filter(([, v]) => v != null);
  if (job.progress != null) {
    put("pct", percent(job.progress * 100));
    $("#job-run [data-live-track]")?.setAttribute("width", `${(100 * job.progress).toFixed(2)}%`);
    $("#job-run .ty-track")?.setAttribute("aria-label", `${Math.round(job.progress * 100)} percent done`);
  }
  put("step", group(job.step));
  put("epoch", group(job.epoch));
  const rest = $("#job-run [data-left]");
  if (rest && job.remaining_s != null) {
    rest.hidden = false;
    put("left", span(job.remaining_s));
    put("ends", clock(new Date(Date.now() + job.remaining_s * 1000)));
  }
  metrics();
  const rates = all("examples_per_s"),
    times = all("step_time_ms"),
    steps = all("steps_per_s");
  if (rates.length) {
    const sum = rates.reduce((all, [, v]) => all + v, 0),
      devices = +page.dataset.devices;
    put("eps", group(sum));
    if (devices > 1) put("eps-note", `${group(sum / devices)} per device`);
  }
  if (times.length) {
    const [who, ms] = times.reduce((a, b) => (b[1] > a[1] ? b : a));
    put("ms", ms.toFixed(1));
    if (times.length > 1) put("ms-note", `slowest: ${replicaName(who)}`);
  }
  if (steps.length) put("sps", steps[0][1].toFixed(1));
}
function processes() {
  for (const row of rows().filter((r) => r.dataset.status === "running")) {
    const beat = beats[row.dataset.replicaId],
      ms = store.last("step_time_ms", row.dataset.replica);
    if (beat) {
      setText($("[data-live=cpu]", row), `${Math.round(beat.cpu_percent)} %`);
      setText($("[data-live=memory]", row), bytes(beat.memory_bytes));
    }
    if (ms != null) setText($("[data-live=ms]", row), `${ms.toFixed(1)} ms`);
  }
}
// A tile for each metric, the server prints it: of a recipe the means of the last epoch, of a script what it reported last.
// Until a recipe's first epoch has ended, its loss is the last step's.
function metrics() {
  const { metrics, step, total_steps, epoch, epochs, status } = job,
    tiles = $$('#job-run .ty-metric-figure [data-live^="of "]'),
    due = isRecipe ? +("loss" in metrics) + !!metricNames().length : Math.min(MOST_TOLD, Object.keys(metrics).length),
    unsaid = (step && !$('#job-run [data-live="step"]')) || (total_steps && !$('#job-run [data-live="pct"]'));
  if (status === "running" && (tiles.length < due || unsaid)) renew();
  put("loss-of-step", figure(store.replicas("loss").map((r) => store.last("loss", r))[0]));
  for (const tile of tiles) {
    const name = tile.dataset.live.slice(3),
      v = num(metrics[name]);
    setText(tile, SHARE.test(name) && Number.isFinite(v) ? (v * 100).toFixed(1) : figure(v));
    if (!isRecipe) continue;
    const note =
      name !== "loss"
        ? `epoch ${epoch} of ${epochs}`
        : "val_loss" in metrics
          ? `validation ${figure(num(metrics.val_loss))}`
          : "";
    setText($(".ty-metric-note", tile.closest(".ty-metric")), note);
  }
  if (job.started_at && !job.ended_at) put("time", span((Date.now() - Date.parse(job.started_at)) / 1000));
}
addEventListener("click", (e) => {
  const of = e.target.closest("[data-log-of]"),
    first = e.target.closest("[data-first-error]");
  if (of) {
    log((l) => l.choose(of.dataset.logOf));
    showTfConfig(of.dataset.logOf);
  }
  if (first) log((l) => l.choose("", true));
});
gantt(renew);
localTimes();
