// The list of jobs, alive: progress is written in place; a change of state fetches the list again and swaps the rows
// that differ. While a person points at the table or has focus in it, no row comes or goes.
import { $, $$, fetchParts, swap } from "./base/dom.js";
import { figure, localTimes, num, percent, span } from "./base/format.js";
import { live, painter, say, setText } from "./base/live.js";
import { feed } from "./base/socket.js";
const jobs = new Map(), PAUSE_MS = 400;
let timer = 0, busy = false, missed = false, wanted = false;

const list = () => $("#job-list"), held = () => list().matches(":hover") || list().contains(document.activeElement);
const signature = (j) => [j.status, j.attempt, j.reason, j.waiting_for].join("|");
function paintRows() {
  for (const [id, job] of jobs) {
    const row = document.getElementById(`job-${id}`);
    if (!row || row.dataset.status !== job.status) continue;
    if (job.progress != null) { setText($("[data-live=pct]", row), percent(job.progress * 100)); const bar = $("progress", row); if (bar) bar.value = job.progress * 100; }
    if (job.remaining_s != null) setText($("[data-live=eta]", row), span(job.remaining_s));
    if (job.metrics.loss !== undefined) setText($("[data-live=loss]", row), figure(num(job.metrics.loss)));
  }
}
const paint = painter(paintRows);

async function renew() {
  timer = 0;
  if (busy) { missed = true; return; }
  if (!live.on || document.hidden) { wanted = true; return; }
  busy = true; missed = wanted = false;
  try {
    const page = (await fetchParts(location.href)).map((el) => $("#job-list", el)?.closest("main") ?? null).find(Boolean), fresh = page && $("#job-list", page);
    if (fresh) {
      localTimes(page);
      swap($("#job-statuses", page));
      const ids = (root) => $$("tr[data-job]", root).map((r) => r.id).join(" ");
      if (ids(fresh) === ids(list())) $$("tr[data-job]", fresh).forEach((row) => swap(row));
      else if (held()) { wanted = true; $$("tr[data-job]", fresh).forEach((row) => document.getElementById(row.id) && swap(row)); }
      else { swap(fresh); swap($("#job-pages", page)); }
      paint();
    }
  } catch { wanted = true; }
  busy = false;
  if (missed) plan();
}
const plan = () => { timer ||= setTimeout(renew, PAUSE_MS); };
live.watch(() => live.on && wanted && plan());
document.addEventListener("visibilitychange", () => !document.hidden && wanted && plan());
for (const type of ["pointerout", "focusout"]) document.addEventListener(type, () => wanted && setTimeout(() => !held() && plan(), 50));

feed("/ws/jobs/", {
  snapshot(data) {
    const known = jobs.size > 0;
    const changed = data.jobs.some((j) => { const row = document.getElementById(`job-${j.id}`); return row ? row.dataset.status !== j.status : false; });
    data.jobs.forEach((j) => jobs.set(j.id, j));
    if (known || changed) plan();
    paint();
  },
  events(events) {
    for (const { kind, job } of events) {
      if (kind !== "job") continue;
      const had = jobs.get(job.id);
      if (had && had.revision > job.revision) continue;
      jobs.set(job.id, job);
      if (!had || signature(had) !== signature(job)) { plan(); if (had && had.status !== job.status) say(`${job.name} is ${job.status}`); }
    }
    paint();
  },
});
