// A chart's card, made from the page's template. Its place is the same whenever it comes; whether it is drawn with a
// logarithmic axis or smoothed stands in the address.
import { asked, keep } from "../base/address.js";
import { $, $$ } from "../base/dom.js";
import { Chart } from "./chart.js";

const KEPT = ["log", "smooth"];
const keys = (tool) => new Set((asked.get(tool) ?? "").split(",").filter(Boolean));
function remember(key, tool, on) {
  if (!KEPT.includes(tool)) return;
  const had = keys(tool);
  on ? had.add(key) : had.delete(key);
  keep(tool, [...had].join(","));
}

// Before the first that stands behind it: by order, then by key.
export function put(el, box) {
  const { order, chart } = el.dataset,
    next = [...box.children].find(({ dataset: d }) => +d.order > +order || (+d.order === +order && d.chart > chart));
  next ? next.before(el) : box.append(el);
}
// about: {key, title, unit, order, tools}, and what `Chart` takes.
export function addChart(box, about) {
  const { key, title, unit, order, tools } = about;
  const el = $("#chart-card").content.firstElementChild.cloneNode(true),
    head = $("h3", el);
  Object.assign(el.dataset, { chart: key, order });
  head.id = `c-${$$(".ty-chart").length}`;
  head.textContent = head.title = title;
  el.setAttribute("aria-labelledby", head.id);
  $(".unit", el).textContent = unit;
  $("[data-tool=table]", el).setAttribute("aria-label", `Show ${title} as a table`);
  $(".ty-legend", el).setAttribute("aria-label", `Series of ${title}`);
  for (const b of $$("[data-tool]", el)) if (!tools.includes(b.dataset.tool)) b.remove();
  put(el, box);
  const chart = new Chart(el, { ...about, changed: (tool, on) => remember(key, tool, on) });
  for (const tool of KEPT) if (keys(tool).has(key) && chart.has(tool)) chart.set(tool, true);
  return chart;
}
