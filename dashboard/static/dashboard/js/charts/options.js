// What uPlot is told of a chart: its lines, axes and cursor, and what a drag or a double click does.
import uPlot from "../../vendor/uPlot.esm.min.js";
import { outdated } from "../base/dom.js";
import { css, fade, family } from "./look.js";
import { FORMAT, X } from "./scales.js";

const alone = (y) => y.filter(Number.isFinite).length === 1;
const ROOM = 12;
// Points that stand closer would be a band, which hides the lines beside it.
function apart(u, line, from, to) {
  const points = u.data[line].slice(from, to + 1).filter((v) => v != null).length;
  return points * ROOM * devicePixelRatio <= u.bbox.width;
}
// A point says nothing between two others; where there is one value only, or few, it is all there is to see.
export const dotted = (line) => !!line.sparse || alone(line.y);

function series(chart) {
  const all = [{}];
  for (const line of chart.all) {
    const stroke = css(`--ty-s${line.s}`),
      base = {
        show: !chart.hidden.has(line.label),
        dash: line.turns ?? line.dash,
        points: { show: dotted(line) && apart, size: 4, fill: stroke, width: 0 },
      };
    if (chart.smooth && !line.sparse) all.push({ ...base, stroke: fade(stroke, 22), width: 1 });
    all.push({ ...base, label: line.label, stroke, width: 1.6, fill: line.top && stroke });
  }
  return all;
}
function range(chart, low, high) {
  if (low == null) return [0, 1];
  if (chart.log) return uPlot.rangeLog(low, high, 10, false);
  return uPlot.rangeNum(chart.spec.zero ? 0 : low, high, {
    min: { pad: 0.06, soft: 0, mode: 3 },
    max: { pad: 0.08, mode: 0 },
  });
}
function axes({ spec }) {
  const x = X[spec.x],
    y = FORMAT[spec.format],
    shared = { stroke: css("--ty-axis"), font: `11px ${family()}`, gap: 6, ticks: { show: false } };
  return [
    {
      ...shared,
      size: 26,
      space: (_u, _axis, _low, _high, px) => (px < 340 ? x.wide : 66),
      grid: { show: false },
      values: (_u, splits, _axis, _space, every) => splits.map((v) => x.axis(v, every)),
      incrs: x.incrs,
    },
    {
      ...shared,
      size: spec.format === "bytes" ? 58 : 44,
      space: 34,
      grid: { stroke: css("--ty-grid"), width: 1 },
      values: (_u, splits) => splits.map((v) => (v == null ? "" : y.axis(v))),
    },
  ];
}
// Between two points the cursor reads the earlier one.
function lastKnown(u, line, index) {
  let k = index;
  while (k > 0 && u.data[line][k] == null) k--;
  return k;
}
function select(chart, u) {
  const { left, width } = u.select;
  if (width <= 4) return;
  u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
  chart.zoom({ min: u.posToVal(left, "x"), max: u.posToVal(left + width, "x") });
}

// What is drawn beside the lines, of which most charts have nothing: its script comes with the first.
let beside = null;
function draw(u, kind, all) {
  if (!all.length) return;
  if (beside) beside[kind](u, all);
  else
    import("./marks.js").then((module) => {
      beside = module;
      u.redraw(false);
    }, outdated);
}

export function options(chart) {
  const { spec } = chart,
    starts = () => spec.starts?.() ?? [];
  return {
    ...chart.size(),
    series: series(chart),
    legend: { show: false },
    padding: [starts().length ? 20 : 10, X[spec.x].edge, 0, 0],
    focus: { alpha: chart.smooth ? 1 : 0.3 },
    cursor: {
      sync: { key: spec.sync, setSeries: false, scales: ["x", null] },
      drag: { x: true, y: false, setScale: false },
      points: { size: 6, width: 1.5 },
      focus: { prox: 16 },
      dataIdx: lastKnown,
      bind: { dblclick: () => () => chart.zoom(null) },
    },
    scales: {
      x: { time: false, auto: false, range: (_u, low, high) => [low, high] },
      y: { distr: chart.log ? 3 : 1, range: (_u, low, high) => range(chart, low, high) },
    },
    axes: axes(chart),
    bands: chart.banded ? [{ series: [1, 3], fill: fade(css("--ty-s1"), 14) }] : [],
    hooks: {
      drawClear: [(u) => draw(u, "marks", starts())],
      draw: [(u) => draw(u, "crosses", chart.bad)],
      setCursor: [(u) => chart.values(u.cursor.idx)],
      setSelect: [(u) => select(chart, u)],
    },
  };
}
