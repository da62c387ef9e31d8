// The overview, alive: progress is written in place; when a job or a node changes its state, the printed parts are
// fetched again and those that differ take the place of the old ones.
import { $, $$ } from "./base/dom.js";
import { num, percent, span } from "./base/format.js";
import { painter, setText } from "./base/live.js";
import { refresher, swapAll } from "./base/parts.js";
import { feed } from "./base/socket.js";

const PARTS = ["ov-tiles", "ov-attention", "ov-running", "ov-waiting", "ov-machines", "ov-events"];
const jobs = new Map();
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
const renew = refresher(location.href, {
  put(parts) {
    const page = parts.find((el) => $("#ov-tiles", el));
    if (!page) return;
    swapAll(PARTS.map((id) => $(`#${id}`, page)).filter(Boolean));
    paint();
  },
  pause: 500,
});
const signature = (j) => [j.status, j.attempt, j.reason, j.waiting_for, j.progress == null].join("|");

function job(next) {
  const had = jobs.get(next.id);
  if (had && had.revision > next.revision) return;
  jobs.set(next.id, next);
  if (!had || signature(had) !== signature(next)) renew();
}
feed("/ws/jobs/", {
  snapshot(data) {
    for (const j of data.jobs) jobs.set(j.id, j);
    renew();
    paint();
  },
  events(events) {
    for (const { kind, job: news } of events) {
      if (kind === "job") job(news);
      if (kind === "progress" && jobs.has(news.id)) job({ ...jobs.get(news.id), ...news });
    }
    paint();
  },
});
feed("/ws/machines/", {
  snapshot: renew,
  events: (events) => events.some((e) => e.kind === "replicas" || e.kind === "node") && renew(),
});
