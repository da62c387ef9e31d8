// Clusters and nodes: loads are written as they arrive; a change of state or holders fetches the printed parts again.
import { beats, heard } from "./base/beats.js";
import { $, $$ } from "./base/dom.js";
import { num } from "./base/format.js";
import { live, say, setText } from "./base/live.js";
import { refresher, swapAll } from "./base/parts.js";
import { feed } from "./base/socket.js";

const head = $("[data-machines]");
let states = new Map();

// The load of the nodes that stand here is all that is sent of load: where others do, it is asked for anew.
const address = () => `${head.dataset.machines}?nodes=${$$("tr[data-node]").map((row) => row.dataset.node)}`;
let shown = address();
const refetch = refresher(head.dataset.state, {
  put(parts) {
    swapAll(parts);
    if (shown !== address()) {
      shown = address();
      machines.again(shown);
    }
  },
});
const mean = (list) => list.reduce((sum, v) => sum + v, 0) / list.length;
const whole = (v) => (Number.isFinite(v) ? `${v.toFixed(0)} %` : "–");
function load(id, sample) {
  const row = $(`tr[data-node="${id}"]`);
  if (!row || !live.on || !sample?.at) return;
  const cell = (name) => $(`[data-live=${name}]`, row);
  setText(cell("cpu"), whole(num(sample.cpu_percent)));
  setText(cell("memory"), whole((100 * sample.memory_used_bytes) / sample.memory_total_bytes));
  if (sample.gpus.length) setText(cell("gpu"), whole(mean(sample.gpus.map((g) => num(g.utilisation)))));
  heard(row);
}
function changed(e) {
  const before = states.get(e.node_id);
  states.set(e.node_id, e.state);
  if (before && before !== e.state)
    say(`${$(`tr[data-node="${e.node_id}"] .row-link`)?.textContent ?? "A node"} is ${e.state}`);
  refetch();
}
const machines = feed(shown, {
  snapshot(data) {
    states = new Map(data.nodes.map((n) => [n.node_id, n.state]));
    refetch();
  },
  events(list) {
    for (const e of list) {
      if (e.kind === "sample") load(e.node_id, e.sample);
      if (e.kind === "node") changed(e);
      if (e.kind === "replicas") refetch();
    }
  },
});
beats();
