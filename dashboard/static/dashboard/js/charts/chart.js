// A chart card over uPlot. One card = [data-chart] with a plot and a legend; its lines come from `read` at each drawing.
// Cards with the same `sync` share cursor and zoom: drag to zoom, double click to go back.
import uPlot from "../../vendor/uPlot.esm.min.js";
import { $, $$, make, outdated, svg } from "../base/dom.js";
import { figure } from "../base/format.js";
import { setText } from "../base/live.js";
import { dotted, options } from "./options.js";
import { FORMAT, X } from "./scales.js";
import { band, lower, takeTurns, thin } from "./series.js";

export const MOST_LINES = 8;
const DRAWN = 600,
  KEEP = 0.9,
  KEYS = ["ArrowLeft", "ArrowRight", "PageUp", "PageDown", "Home", "End", "+", "=", "-", "0"];
const views = new Map(),
  cards = new Set();

function smooth(y) {
  let sum = 0,
    weight = 0;
  return y.map((v) => {
    if (!Number.isFinite(v)) return v;
    weight = weight * KEEP + 1 - KEEP;
    sum = sum * KEEP + v * (1 - KEEP);
    return sum / weight;
  });
}
// A drag is told to every card of the group; only the first may answer, the others already stand in the new view.
let zooming = false;
function zoom(sync, view) {
  if (zooming) return;
  zooming = true;
  setTimeout(() => {
    zooming = false;
  });
  view ? views.set(sync, view) : views.delete(sync);
  for (const c of cards) if (c.spec.sync === sync) c.draw();
}

export class Chart {
  // spec: {key, x: a key of X, format, zero, log, sync, every: no bands, read(hidden) → [{label, title, s, x, y, dash: [on, off],
  // sparse, top: where it stands on others, its upper edge}], starts() → [{x, label}], points: where all points of the series called `names` are had, changed(tool, on)}
  constructor(el, spec) {
    Object.assign(this, {
      el,
      spec,
      plot: $(".ty-plot", el),
      key: $(".ty-legend", el),
      log: !!spec.log,
      smooth: false,
      hidden: new Set(),
      shape: "",
      seen: false,
      where: make("span", { class: "at" }),
    });
    this.title = $("h3", el).textContent;
    this.plot.setAttribute("aria-label", this.title);
    for (const b of $$("[data-tool]", el))
      b.onclick = () => this.set(b.dataset.tool, b.getAttribute("aria-pressed") !== "true");
    const take = {
      screen: () => (document.fullscreenElement ? document.exitFullscreen() : el.requestFullscreen()),
      png: () => import("./picture.js").then(({ savePicture }) => savePicture(this), outdated),
      csv:
        spec.names &&
        (() => location.assign(`${spec.points}&${new URLSearchParams(spec.names.map((n) => ["name", n]))}`)),
    };
    for (const b of $$("[data-take]", el)) {
      b.onclick = take[b.dataset.take];
      b.hidden = !b.onclick;
    }
    this.whole = $("[data-whole]", el);
    this.whole.onclick = () => {
      this.zoom(null);
      this.plot.focus({ preventScroll: true });
    };
    this.plot.tabIndex = 0;
    this.plot.onkeydown = (e) => {
      if (!KEYS.includes(e.key) || e.ctrlKey || e.metaKey || e.altKey) return;
      e.preventDefault();
      import("./keys.js").then(({ press }) => press(this, e.key), outdated);
    };
    this.plot.onblur = () => this.u?.setCursor({ left: -10, top: -10 });
    new IntersectionObserver(
      (es) => {
        this.seen = es.at(-1).isIntersecting;
        if (this.seen) this.draw();
      },
      { rootMargin: "300px" },
    ).observe(el);
    new ResizeObserver(() => this.u?.setSize(this.size())).observe(this.plot);
    cards.add(this);
  }
  zoom(view) {
    zoom(this.spec.sync, view);
  }
  // Draws by another axis, whole: where it was zoomed to means nothing there.
  by(x) {
    if (x === this.spec.x) return;
    this.spec.x = x;
    this.shape = "";
    views.delete(this.spec.sync);
  }
  size() {
    return { width: this.plot.clientWidth, height: this.plot.clientHeight };
  }
  has(tool) {
    return !!$(`[data-tool=${tool}]`, this.el);
  }
  set(tool, on) {
    $(`[data-tool=${tool}]`, this.el)?.setAttribute("aria-pressed", String(on));
    if (tool === "table") {
      this.plot.hidden = on;
      $(".ty-chart-table", this.el)?.remove();
      this.rows = on;
    } else this[tool] = on;
    this.shape = "";
    this.draw();
    this.spec.changed?.(tool, on);
  }
  lines() {
    let lines = this.spec.read(this.hidden).filter((l) => l.x.length);
    this.banded = lines.length > MOST_LINES && !this.spec.every;
    if (this.banded)
      lines = band(
        lines,
        lines.map((l) => l.label),
      );
    takeTurns(lines.filter((l) => !l.top && !this.hidden.has(l.label)));
    return lines;
  }
  draw(unseen = false) {
    if ((!this.seen && !unseen) || (!this.plot.clientWidth && !this.rows)) return;
    this.whole.hidden = !views.has(this.spec.sync);
    this.all = this.lines();
    const drawn = this.all.map((l) => this.cut(l.x, l.top ?? l.y)),
      columns = this.columns(drawn);
    const shape = JSON.stringify([
      this.all.map((l) => [l.label, l.s, dotted(l), l.turns]),
      this.log,
      this.smooth,
      [...this.hidden],
      !!this.spec.starts?.().length,
    ]);
    const changed = shape !== this.shape;
    this.shape = shape;
    if (changed) this.legend();
    if (this.rows) {
      this.values();
      return this.table();
    }
    if (changed) this.build(columns);
    else
      this.u.batch(() => {
        this.u.setData(columns, false);
        this.u.setScale("x", this.extent(columns[0]));
      });
    this.values(this.u.cursor.idx);
  }
  extent(x) {
    const view = views.get(this.spec.sync);
    if (view) return view;
    return x.length > 1 ? { min: x[0], max: x.at(-1) } : { min: (x[0] ?? 0) - 1, max: (x[0] ?? 0) + 1 };
  }
  // The part in view, one point beyond each edge, as many points as the plot can show.
  cut(x, y) {
    const view = views.get(this.spec.sync),
      smoothed = this.smooth ? smooth(y) : null;
    const a = view ? Math.max(0, lower(x, view.min) - 1) : 0,
      b = view ? Math.min(x.length, lower(x, view.max) + 2) : x.length;
    return [y, smoothed].map((v) => v && thin({ x: x.slice(a, b), y: v.slice(a, b) }, DRAWN));
  }
  columns(drawn) {
    const clean = (v) => (!Number.isFinite(v) || (this.log && v <= 0) ? null : v);
    this.bad = drawn.flatMap(([raw], i) =>
      this.hidden.has(this.all[i].label)
        ? []
        : raw.x.flatMap((x, k) =>
            raw.y[k] === null || Number.isFinite(raw.y[k]) ? [] : [{ x, word: figure(raw.y[k]) }],
          ),
    );
    const tables = drawn.flatMap(([raw, soft], i) =>
      (soft && !this.all[i].sparse ? [raw, soft] : [raw]).map((t) => [t.x, t.y.map(clean)]),
    );
    return tables.length ? uPlot.join(tables) : [[]];
  }
  build(columns) {
    this.u?.destroy();
    this.u = new uPlot(options(this), columns, this.plot);
    this.u.over.setAttribute("aria-hidden", "true");
    this.u.setScale("x", this.extent(columns[0]));
  }
  legend() {
    const focused = this.key.contains(document.activeElement)
      ? $$("button", this.key).indexOf(document.activeElement)
      : -1;
    this.key.classList.toggle("is-many", this.all.length > 4 && !this.all[0].top);
    this.key.replaceChildren(
      ...this.all.map((l) => {
        const line = svg("line", {
          x1: 0,
          x2: 16,
          y1: 5,
          y2: 5,
          stroke: "currentColor",
          "stroke-width": 2.5,
          ...(l.dash && { "stroke-dasharray": l.dash.join(" ") }),
        });
        l.out = make("span", { class: "v" });
        const b = make(
          "button",
          {
            type: "button",
            class: `s${l.s}`,
            "aria-pressed": String(!this.hidden.has(l.label)),
            title: l.title ?? l.label,
          },
          svg("svg", { "aria-hidden": "true" }, line),
          make("span", { class: "k trunc" }, l.label),
          l.out,
        );
        b.onclick = () => {
          this.hidden.has(l.label) ? this.hidden.delete(l.label) : this.hidden.add(l.label);
          this.draw();
        };
        b.onpointerenter = () => this.u?.setSeries(this.at(l.label), { focus: true });
        b.onpointerleave = () => this.u?.setSeries(null, { focus: true });
        return b;
      }),
      this.where,
    );
    this.outs = this.all.map((l) => l.out);
    if (focused >= 0) $$("button", this.key)[focused]?.focus();
  }
  at(label) {
    return this.u.series.findIndex((s) => s.label === label);
  }
  // The latest values, or those under the cursor.
  values(i) {
    const format = FORMAT[this.spec.format].value,
      x = i == null ? null : this.u.data[0][i];
    const texts = this.all.map((l) => {
      const k = x == null ? l.x.length - 1 : lower(l.x, x + 1e-9) - 1,
        v = l.y[k];
      return v == null ? "no data" : Number.isFinite(v) ? format(v) : figure(v);
    });
    for (const [k, text] of texts.entries()) setText(this.outs[k], text);
    const moment = x ?? Math.max(...this.all.map((l) => l.x.at(-1))),
      { name, value } = X[this.spec.x];
    setText(this.where, this.all.length ? `${name} ${value(moment)}` : "");
    if (x == null)
      this.plot.setAttribute(
        "aria-label",
        `${this.title}: ${this.all.map((l, k) => `${l.label} ${texts[k]}`).join(", ") || "no data yet"}.`,
      );
  }
  table() {
    import("./table.js").then(({ showTable }) => this.rows && showTable(this), outdated);
  }
}
const drawEach = (unseen = false) => {
  for (const c of cards) c.draw(unseen);
};
export const drawAll = () => drawEach();
addEventListener("beforeprint", () => drawEach(true));
new MutationObserver(() => {
  for (const c of cards) c.shape = "";
  drawEach();
}).observe(document.documentElement, { attributeFilter: ["data-bs-theme"] });
for (const b of $$("[data-all]"))
  b.addEventListener("click", () => {
    const on = b.getAttribute("aria-pressed") !== "true",
      tool = b.dataset.all;
    b.setAttribute("aria-pressed", String(on));
    for (const c of cards) c.has(tool) && c.set(tool, on);
  });
