// How the values of a chart are written, on its axes and in its legend, by the format or the kind of axis that it names.
import { bytes, clock, figure, group, seconds, span } from "../base/format.js";

const short = (v) => {
  const a = Math.abs(v);
  return a >= 1e6
    ? `${+(v / 1e6).toFixed(1)}M`
    : a >= 1000
      ? `${+(v / 1000).toFixed(1)}k`
      : a && a < 0.001
        ? v.toExponential(0)
        : String(+v.toPrecision(4));
};
export const FORMAT = {
  plain: { value: figure, axis: short },
  percent: { value: (v) => `${v.toFixed(1)} %`, axis: short },
  ms: { value: (v) => `${v < 10 ? v.toFixed(2) : v.toFixed(1)} ms`, axis: short },
  rate: { value: (v) => (v >= 100 ? group(v) : v.toFixed(1)), axis: short },
  bytes: { value: bytes, axis: bytes },
  watts: { value: (v) => `${v.toFixed(0)} W`, axis: short },
  degrees: { value: (v) => `${v.toFixed(0)} °C`, axis: short },
};
const number = { axis: short, wide: 44, edge: 17 };
const moment = (v) => new Date(v * 1000);
const TIMES = [1, 2, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 28_800, 86_400, 172_800, 604_800];
// How long after the beginning, to the second within the first hour.
const passed = (v) => (v >= 60 && v < 3600 && v % 60 >= 1 ? `${span(v)} ${Math.floor(v % 60)} s` : span(v));
// `edge` is the room at the right for half of the last label. Steps are whole. Less than a minute between two ticks needs seconds to tell them apart.
export const X = {
  step: {
    value: group,
    axis: short,
    name: "Step",
    wide: 44,
    edge: 17,
    incrs: [...Array(36)].map((_, i) => [1, 2, 5][i % 3] * 10 ** Math.floor(i / 3)),
  },
  clock: {
    value: (v) => seconds(moment(v)),
    axis: (v, every) => (every < 60 ? seconds : clock)(moment(v)),
    name: "Time",
    wide: 60,
    edge: 28,
    incrs: TIMES,
  },
  epoch: { ...number, value: (v) => v.toFixed(1), name: "Epoch" },
  elapsed: { value: passed, axis: passed, name: "Time", wide: 60, edge: 28, incrs: TIMES },
  examples: { ...number, value: group, name: "Examples" },
};
