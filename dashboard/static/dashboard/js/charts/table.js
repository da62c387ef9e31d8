// A chart as a table, loaded when it is first asked for: a dozen moments of its longest line, and what every line was there.
import { $, make } from "../base/dom.js";
import { figure } from "../base/format.js";
import { FORMAT, X } from "./scales.js";
import { lower } from "./series.js";

const ROWS = 12;

// In the place of the chart's plot.
export function showTable({ el, plot, title, all, spec }) {
  const old = $(".ty-chart-table", el),
    fresh = table(all, X[spec.x], FORMAT[spec.format].value);
  if (old) return old.replaceChildren(fresh);
  const label = `${title}, values`;
  plot.after(
    make("div", { class: "ty-scroll ty-chart-table ty-plot", tabindex: 0, role: "region", "aria-label": label }, fresh),
  );
}
function table(all, x, format) {
  const longest = all.reduce((a, b) => (b.x.length > a.x.length ? b : a), { x: [] }).x;
  const places = [...Array(ROWS)].map((_, i) => Math.round((i * (longest.length - 1)) / (ROWS - 1)));
  const moments = [...new Set(places)].filter((i) => i >= 0).map((i) => longest[i]);
  const cell = (line, v) => {
    const k = lower(line.x, v + 1e-9) - 1;
    if (k < 0 || line.y[k] == null) return "–";
    return Number.isFinite(line.y[k]) ? format(line.y[k]) : figure(line.y[k]);
  };
  const row = (tag, texts) =>
    make("tr", {}, ...texts.map((t) => make(tag, { class: "n", ...(tag === "th" && { scope: "col" }) }, t)));
  return make(
    "table",
    { class: "ty-table is-compact" },
    make("thead", {}, row("th", [x.name, ...all.map((line) => line.label)])),
    make("tbody", {}, ...moments.map((v) => row("td", [x.value(v), ...all.map((line) => cell(line, v))]))),
  );
}
