// What is known of a series by its name: how its card is called, where it stands, how its values are written.
const METRIC = 10;
const SHARE = /(^|_)(acc|accuracy)$/;
const ADVICE = { order: 24, tools: "smooth table" };
const KNOWN = {
  loss: { order: 0 },
  examples_per_s: {
    order: 20,
    title: "Examples per second",
    format: "rate",
    zero: true,
    tools: "smooth table",
    sum: true,
  },
  step_time_ms: { order: 21, title: "Step time", unit: "ms", format: "ms", tools: "smooth table" },
  steps_per_s: { order: 22, title: "Steps per second", format: "rate", zero: true, tools: "smooth table" },
  learning_rate: { order: 23, tools: "log table", sparse: true },
  staleness: ADVICE,
  staleness_max: ADVICE,
  bubble: ADVICE,
};

const words = (name) => {
  const t = name.replaceAll("_", " ");
  return t.charAt(0).toUpperCase() + t.slice(1);
};
export const validates = (name) => name.startsWith("val_");
// The measure that a series belongs to; what was measured beside the training is drawn with what it is compared to.
export const measureOf = (name) => (validates(name) ? name.slice(4) : name);
export const isMetric = ({ order }) => order === METRIC;
// {title, unit, order, tools, format, factor: by which values are drawn, zero, sum: over replicas, sparse}
export function known(measure) {
  const share = SHARE.test(measure);
  return {
    title: words(measure),
    unit: share ? "%" : "",
    order: METRIC,
    tools: share ? "smooth table" : "log smooth table",
    format: share ? "percent" : "plain",
    factor: share ? 100 : 1,
    ...KNOWN[measure],
  };
}
