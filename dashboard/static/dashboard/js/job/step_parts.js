// The chart of a step's parts, one above the other, loaded with the first of them: those of the leader.
import { align } from "../charts/series.js";

const STEP_PART = "step_part/";

// box: the place of charts, which knows the parts' names, the lowest first · drawn(line): as it is drawn
export function stepParts(box, store, placeOf, drawn) {
  const labels = JSON.parse(box.dataset.parts),
    parts = Object.keys(labels),
    leads = () => store.replicas(`${STEP_PART}input`).sort((a, b) => placeOf(a) - placeOf(b))[0];
  return {
    key: "step_part",
    title: "Parts of a step",
    unit: "ms",
    order: 21,
    tools: "table",
    format: "ms",
    zero: true,
    names: parts.map((part) => STEP_PART + part),
    // From the top down, as each is painted over those above it. What is hidden has no height.
    read(hidden) {
      const known = parts.filter((part) => store.names.has(STEP_PART + part)),
        lines = known.map((part) => store.lines(STEP_PART + part, leads()).at(-1)).map((line) => line && drawn(line));
      if (lines.some((line) => !line)) return [];
      const { x, columns } = align(lines);
      let top = x.map(() => 0);
      return known
        .map((part, k) => {
          const label = labels[part],
            y = columns[k];
          if (!hidden.has(label)) top = top.map((sum, i) => sum + (y[i] ?? 0));
          return { label, s: `-${part}`, x, y, top };
        })
        .reverse();
    },
  };
}
