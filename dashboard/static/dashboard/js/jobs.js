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
    const { metric } = list().dataset,
      value = job.metrics[metric === "loss" ? job.loss_name : metric];
    if (value !== undefined) setText($("[data-live=metric]", row), figure(num(value)));
  }
}
const paint = painter(paintRows);

// The jobs that are selected: the bar below the table asks what to do with them. Without script it is always there.
const bar = $("#bulk"),
  picks = (root = document) => $$("input[name=jobs]", root),
  picked = () => picks().filter((box) => box.checked);
function count() {
  const n = picked().length,
    all = $("#pick-all");
  bar.hidden = !n;
  setText($("#picked"), `${n} selected`);
  for (const b of $$("[data-least]", bar)) b.disabled = n < +b.dataset.least || n > +b.dataset.most;
  if (!all) return;
  all.hidden = false;
  all.checked = n > 0 && n === picks().length;
  all.indeterminate = n > 0 && !all.checked;
}
addEventListener("change", (e) => {
  if (e.target.id === "pick-all") for (const box of picks()) box.checked = e.target.checked;
  if (e.target.closest("#job-list")) count();
});
addEventListener("pageshow", count);
count();
// Rows that are printed anew keep their tick.
function keepPicks(root) {
  const had = new Set(picked().map((box) => box.value));
  for (const box of picks(root)) box.checked = had.has(box.value);
}

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
    keepPicks(fresh);
    late = !same && held();
    if (same || late) swapAll($$("tr[data-job]", fresh));
    else swapAll([fresh, $("#job-pages", page)]);
    count();
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
    for (const { kind, job: news } of events) {
      const had = jobs.get(news?.id);
      if (kind !== "job" && !(kind === "progress" && had)) continue;
      const job = { ...had, ...news };
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
