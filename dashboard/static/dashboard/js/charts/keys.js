// A chart by keyboard, loaded with the first key: arrows move the cursor through the points in view, + and − change the
// view around it, 0 shows everything.
import { lower } from "./series.js";

const PAGE = 10;

export function press(chart, key) {
  const { u, all } = chart,
    x = u?.data[0];
  if (!x?.length) return;
  const { min, max } = u.scales.x,
    first = lower(x, min),
    last = lower(x, max + 1e-9) - 1,
    at = u.cursor.idx ?? last;
  const move = { ArrowLeft: -1, ArrowRight: 1, PageUp: -PAGE, PageDown: PAGE, Home: -x.length, End: x.length }[key],
    scale = { "+": 0.5, "=": 0.5, "-": 2 }[key];
  if (move) {
    const to = x[Math.min(last, Math.max(first, at + move))];
    u.setCursor({ left: u.valToPos(to, "x"), top: u.over.clientHeight / 2 }, true, true);
  } else if (scale) {
    const to = { min: x[at] - (x[at] - min) * scale, max: x[at] + (max - x[at]) * scale };
    if (to.max > to.min) chart.zoom(scale > 1 && to.min <= all[0].x[0] && to.max >= all[0].x.at(-1) ? null : to);
  } else chart.zoom(null);
}
