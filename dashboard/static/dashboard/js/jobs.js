// The list of jobs, alive: progress is written in place; a change of state fetches the list again and swaps the rows
// that differ. While a person points at the table or has focus in it, no row comes or goes.
import { $, $$, swap } from "./base/dom.js";
import { figure, num, percent, span } from "./base/format.js";
import { painter, say, setText } from "./base/live.js";
import { refresher, swapAll } from "./base/parts.js";
import { feed } from "./base/socket.js";

const jobs = new Map();
// Rows that would come or go wait while the table is held.
let late = false;

const list = () => $("#job-list"),
  held = () => list().matches(":hover") || list().contains(document.activeElement);
const signature = (j) => [j.status, j.attempt, j.reason, j.waiting_for].join("|");
function paintRows() {
  for (const [id, job] of jobs) {
    const row = document.getElementById(`job-${id}`);
    if (!row || row.dataset.status !== job.status) continue;
    if (job.progress != null) {
      setText($("[data-live=pct]", row), percent(job.progress * 100));
      const bar = $("progress", row);
      if (bar) bar.value = job.progress * 100;
    }
    if (job.remaining_s != null) setText($("[data-live=eta]", row), span(job.remaining_s));
    if (job.metrics.loss !== undefined) setText($("[data-live=loss]", row), figure(num(job.metrics.loss)));
  }
}
const paint = painter(paintRows);

const ids = (root) =>
  $$("tr[data-job]", root)
    .map((row) => row.id)
    .join(" ");
const renew = refresher(location.href, {
  put(parts) {
    const page = parts.find((el) => $("#job-list", el));
    if (!page) return;
    const fresh = $("#job-list", page),
      same = ids(fresh) === ids(list());
    swap($("#job-statuses", page));
    late = !same && held();
    if (same || late) swapAll($$("tr[data-job]", fresh));
    else swapAll([fresh, $("#job-pages", page)]);
    paint();
  },
  pause: 400,
});
for (const type of ["pointerout", "focusout"])
  document.addEventListener(type, () => late && setTimeout(() => late && !held() && renew(), 50));

feed("/ws/jobs/", {
  snapshot(data) {
    const known = jobs.size > 0;
    const changed = data.jobs.some((j) => {
      const row = document.getElementById(`job-${j.id}`);
      return row ? row.dataset.status !== j.status : false;
    });
    for (const j of data.jobs) jobs.set(j.id, j);
    if (known || changed) renew();
    paint();
  },
  events(events) {
    for (const { kind, job } of events) {
      if (kind !== "job") continue;
      const had = jobs.get(job.id);
      if (had && had.revision > job.revision) continue;
      jobs.set(job.id, job);
      if (!had || signature(had) !== signature(job)) {
        renew();
        if (had && had.status !== job.status) say(`${job.name} is ${job.status}`);
      }
    }
    paint();
  },
});
