// One node: figures, curves and devices move with each sample; a change of state or holders fetches the printed parts.
import { beats, heard } from "./base/beats.js";
import { $, $$ } from "./base/dom.js";
import { num } from "./base/format.js";
import { painter, say, setText } from "./base/live.js";
import { refresher } from "./base/parts.js";
import { feed } from "./base/socket.js";
import { Chart, drawAll } from "./charts/chart.js";
import { Line, readings } from "./charts/series.js";

const head = $("#node-head"),
  NODE = head.dataset.node,
  KEPT_S = 900,
  GB = 1e9,
  MB = 1e6;
const GPU = {
  gpu_load: ["utilisation", "percent"],
  gpu_memory: ["memory_bytes", "bytes"],
  gpu_temperature: ["temperature", "degrees"],
  gpu_power: ["power_w", "watts"],
};
let lines = new Map(),
  state = "",
  latest = null;

const add = (name, times, values) =>
  (lines.get(name) ?? lines.set(name, new Line()).get(name)).add(times, values.map(num));
const line = (name, label, s, scale = 1) => {
  const { x, y } = lines.get(name) ?? { x: [], y: [] },
    from = x.findIndex((t) => t >= (x.at(-1) ?? 0) - KEPT_S);
  return {
    label,
    s,
    x: x.slice(Math.max(0, from)),
    y: y.slice(Math.max(0, from)).map((v) => (v == null ? v : v / scale)),
  };
};
const gpus = (what) =>
  [...lines.keys()]
    .map((name) => new RegExp(`^gpu(\\d+)_${what}$`).exec(name))
    .filter(Boolean)
    .sort((a, b) => a[1] - b[1])
    .map((m, i) => line(m[0], `GPU ${m[1]}`, (i % 8) + 1));
const READ = {
  cpu: ["percent", () => [line("cpu_percent", "CPU", 1)]],
  memory: ["bytes", () => [line("memory_used_bytes", "In use", 1)]],
  network: ["rate", () => [line("network_received_bps", "Received", 1, MB), line("network_sent_bps", "Sent", 2, MB)]],
};
for (const [key, [what, format]] of Object.entries(GPU)) READ[key] = [format, () => gpus(what)];
for (const el of $$("[data-chart]")) {
  const [format, read] = READ[el.dataset.chart];
  new Chart(el, { key: el.dataset.chart, x: "clock", format, zero: format !== "degrees", sync: "node", read });
}

const figure = (key, text) => setText($(`#node-figures [data-live=${key}]`), text);
function rate(key, v) {
  const large = v >= GB;
  figure(key, large ? (v / GB).toFixed(2) : (v / MB).toFixed(1));
  setText($(`#node-figures [data-live=${key}] + .unit`), large ? "GB/s" : "MB/s");
}
function paint() {
  drawAll();
  if (!latest) return;
  figure("cpu", num(latest.cpu_percent)?.toFixed(0));
  figure("memory", (latest.memory_used_bytes / GB).toFixed(1));
  rate("received", num(latest.network_received_bps));
  rate("sent", num(latest.network_sent_bps));
  for (const gpu of latest.gpus) device(gpu);
}
// `tones` is the server's table, "-273:blue 80:amber 85:red": which colour from which temperature on.
const toneOfHeat = (tones, heat) =>
  tones
    .split(" ")
    .map((each) => each.split(":"))
    .filter(([from]) => heat >= from)
    .at(-1)[1];
function device(gpu) {
  const tile = $(`[data-device="${gpu.index}"] dl`);
  if (!tile) return;
  const heat = num(gpu.temperature),
    total = $("[data-live=memory]", tile).textContent.match(/\/ (\d+)/)?.[1];
  const bars = $$(".ty-bar", tile),
    wide = (i, share) => $("rect", bars[i])?.setAttribute("width", `${Math.max(0, Math.min(100, share)).toFixed(1)}%`);
  setText($("[data-live=load]", tile), `${num(gpu.utilisation).toFixed(0)} %`);
  setText($("[data-live=memory]", tile), `${(gpu.memory_bytes / GB).toFixed(1)}${total ? ` / ${total}` : ""} GB`);
  setText($("[data-live=heat]", tile), `${heat.toFixed(0)} °C`);
  setText($("[data-live=power]", tile), `${num(gpu.power_w).toFixed(0)} W`);
  wide(0, num(gpu.utilisation));
  if (total) wide(1, (gpu.memory_bytes / GB / total) * 100);
  wide(2, ((heat - 20) / 70) * 100);
  bars[2].dataset.tone = toneOfHeat(tile.dataset.heatTones, heat);
}
const plan = painter(paint);
function sample(s) {
  latest = s;
  for (const [name, value] of readings(s)) add(name, [s.at], [value]);
  heard(document);
  plan();
}
const refetch = refresher(head.dataset.state);
feed(head.dataset.feed, {
  snapshot(data) {
    lines = new Map();
    for (const [name, { times, values }] of Object.entries(data.samples[NODE] ?? {})) add(name, times, values);
    state = data.node.state;
    latest = state === "lost" || !data.node.sample.at ? null : data.node.sample;
    refetch();
    plan();
  },
  events(list) {
    for (const e of list) {
      if (e.kind === "sample") sample(e.sample);
      if (e.kind === "node" && e.state !== state) {
        state = e.state;
        say(`The node is ${state}`);
      }
      if (e.kind === "node" || e.kind === "replicas" || e.kind === "event") refetch();
    }
  },
});
beats();
