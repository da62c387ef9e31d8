// The timeline of a job under way: as time passes, everything moves left and what runs reaches to now.
import { $$ } from "../base/dom.js";
import { clock } from "../base/format.js";

const TOO_NARROW = 1.6,
  HALF_LABEL = 28;

export function gantt(renew) {
  for (const chart of $$("[data-gantt]")) {
    const printed = +chart.dataset.span,
      start = Date.parse(chart.dataset.start);
    const span = "running" in chart.dataset ? Math.max(1, (Date.now() - start) / 1000) : printed,
      x = (s) => `${Math.max(0, Math.min(100, (100 * s) / span)).toFixed(3)}%`;
    for (const el of $$("[data-a]", chart)) {
      const a = +el.dataset.a;
      if (el.tagName === "line") {
        el.setAttribute("x1", x(a));
        el.setAttribute("x2", x(a));
        continue;
      }
      el.setAttribute("x", x(a));
      if ("b" in el.dataset) el.setAttribute("width", x((el.dataset.b === "" ? span : +el.dataset.b) - a));
      if (el.dataset.at) {
        const edge = HALF_LABEL / el.ownerSVGElement.clientWidth;
        el.setAttribute("text-anchor", a / span < edge ? "start" : a / span > 1 - edge ? "end" : "middle");
        const t = new Date(el.dataset.at);
        el.textContent = el.dataset.style === "s" ? `${clock(t)}:${String(t.getSeconds()).padStart(2, "0")}` : clock(t);
      }
    }
    if (span > printed * TOO_NARROW + 5) renew();
  }
}
