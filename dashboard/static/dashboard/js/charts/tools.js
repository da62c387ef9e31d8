// What a chart can be taken away as: a picture of what is drawn, and a table of all points that are stored.
import { make } from "../base/dom.js";
import { complain } from "../base/toast.js";
import { css } from "./look.js";

const MOST = 20_000;

function save(blob, name) {
  const href = URL.createObjectURL(blob);
  make("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 1000);
}
// The plot as it stands, on the page's ground.
export function picture({ u, title }) {
  if (!u) return;
  const { canvas } = u.ctx,
    copy = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height }),
    ctx = copy.getContext("2d");
  ctx.fillStyle = css("--ty-surface");
  ctx.fillRect(0, 0, copy.width, copy.height);
  ctx.drawImage(canvas, 0, 0);
  copy.toBlob((blob) => save(blob, `${title}.png`));
}
// wanted: [{job, names}] → rows of job, series, replica, attempt, step, time, value.
export async function points(title, wanted) {
  const rows = [["job", "series", "replica", "attempt", "step", "time", "value"]];
  const quote = (v) => (/[",\n]/.test(v) ? `"${String(v).replaceAll('"', '""')}"` : v);
  try {
    for (const { job, names } of wanted) {
      const asked = new URLSearchParams({ names: names.join(","), points: MOST }),
        answer = await fetch(`/api/v1/jobs/${job}/series?${asked}`);
      if (!answer.ok) throw new Error(answer.status);
      for (const [name, views] of Object.entries(await answer.json()))
        for (const v of views)
          v.steps.forEach((step, i) => {
            rows.push([job, quote(name), v.replica, v.attempt, step, v.times[i], v.values[i]]);
          });
    }
    save(new Blob([rows.map((r) => r.join(",")).join("\n")], { type: "text/csv" }), `${title}.csv`);
  } catch {
    complain("Not saved", "The points could not be fetched. Try again.");
  }
}
