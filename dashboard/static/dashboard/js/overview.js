// The overview, alive: progress is written in place; when a job or a node changes its state, the printed parts are
// fetched again and those that differ take the place of the old ones.
import { $, $$, fetchParts, swap } from "./base/dom.js";
import { localTimes, num, percent, span } from "./base/format.js";
import { live, painter, setText } from "./base/live.js";
import { feed } from "./base/socket.js";
const PARTS = ["ov-tiles", "ov-attention", "ov-running", "ov-waiting", "ov-machines", "ov-events"], PAUSE_MS = 500;
const jobs = new Map(), nodes = new Map();
let timer = 0, busy = false, missed = false, wanted = false;

const paint = painter(() => {
  for (const row of $$("#ov-running [data-job]")) {
    const job = jobs.get(+row.dataset.job);
    if (!job || job.progress == null) continue;
    setText($("[data-live=pct]", row), percent(num(job.progress) * 100));
    const bar = $("progress", row);
    if (bar) bar.value = job.progress * 100;
    if (job.remaining_s != null) setText($("[data-live=eta]", row), `${span(job.remaining_s)} left`);
  }
});
async function renew() {
  timer = 0;
  if (busy) { missed = true; return; }
  if (!live.on || document.hidden) { wanted = true; return; }
  busy = true; missed = wanted = false;
  try {
    const page = (await fetchParts(location.href)).find((el) => $("#ov-tiles", el));
    if (page) { localTimes(page); PARTS.forEach((id) => { const part = $(`#${id}`, page); if (part) swap(part); }); paint(); }
  } catch { wanted = true; }
  busy = false;
  if (missed) plan();
}
const plan = () => { timer ||= setTimeout(renew, PAUSE_MS); };
live.watch(() => live.on && wanted && plan());
document.addEventListener("visibilitychange", () => !document.hidden && wanted && plan());
const signature = (j) => [j.status, j.attempt, j.reason, j.waiting_for, j.progress == null].join("|");

function job(next) {
  const had = jobs.get(next.id);
  if (had && had.revision > next.revision) return;
  jobs.set(next.id, next);
  if (!had || signature(had) !== signature(next)) plan();
}
feed("/ws/jobs/", {
  snapshot(data) { data.jobs.forEach((j) => jobs.set(j.id, j)); plan(); paint(); },
  events(events) { for (const e of events) if (e.kind === "job") job(e.job); paint(); },
});
feed("/ws/machines/", {
  snapshot(data) { data.nodes.forEach((n) => { const had = nodes.get(n.node_id); if (had && had !== n.state) plan(); nodes.set(n.node_id, n.state); }); },
  events(events) { for (const e of events) if (e.kind === "replicas" || (e.kind === "node" && nodes.get(e.node_id) !== e.state)) { if (e.kind === "node") nodes.set(e.node_id, e.state); plan(); } },
});
