// What is drawn on a plot beside its lines, see `options.js`: where attempts begin, and values that were no numbers.
import { css, family } from "./look.js";

const inside = ({ bbox }, x) => x >= bbox.left && x <= bbox.left + bbox.width;

// A dashed line, its name in the gutter above the plot, never over the data, nor over the name before it.
export function marks(u, starts) {
  const { ctx, bbox } = u,
    dpr = devicePixelRatio || 1;
  let named = -Infinity;
  ctx.save();
  ctx.font = `${11 * dpr}px ${family()}`;
  ctx.strokeStyle = css("--ty-mark");
  ctx.fillStyle = css("--ty-axis");
  ctx.lineWidth = dpr;
  ctx.setLineDash([3 * dpr, 3 * dpr]);
  ctx.textBaseline = "bottom";
  for (const m of starts) {
    const x = Math.round(u.valToPos(m.x, "x", true)) + 0.5;
    if (!inside(u, x)) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    const wide = ctx.measureText(m.label).width,
      left = x > bbox.left + bbox.width - 60 * dpr ? x - wide : x;
    if (left < named) continue;
    named = left + wide + 6 * dpr;
    ctx.fillText(m.label, left, bbox.top - 4 * dpr);
  }
  ctx.restore();
}

// A cross on the top edge in the colour of failure; the word once where crosses stand close together.
// bad: [{x, word}], what each value was.
export function crosses(u, bad) {
  const { ctx, bbox } = u,
    dpr = devicePixelRatio || 1,
    r = 3.5 * dpr,
    y = bbox.top + 9 * dpr;
  let word = -Infinity;
  ctx.save();
  ctx.strokeStyle = css("--ty-red-solid");
  ctx.fillStyle = css("--ty-red-fg");
  ctx.lineWidth = 1.8 * dpr;
  ctx.font = `600 ${11 * dpr}px ${family()}`;
  ctx.textBaseline = "middle";
  for (const b of bad) {
    const x = u.valToPos(b.x, "x", true);
    if (!inside(u, x)) continue;
    ctx.beginPath();
    ctx.moveTo(x - r, y - r);
    ctx.lineTo(x + r, y + r);
    ctx.moveTo(x + r, y - r);
    ctx.lineTo(x - r, y + r);
    ctx.stroke();
    if (x - word < 48 * dpr) continue;
    word = x;
    const left = x > bbox.left + 36 * dpr;
    ctx.textAlign = left ? "right" : "left";
    ctx.fillText(b.word, x + (left ? -7 : 7) * dpr, y);
  }
  ctx.restore();
}
