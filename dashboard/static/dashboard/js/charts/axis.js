// By what the lines of training are drawn: `placed` gives a line's x, `chooser` lets a person choose. The choice stands in
// the address and is remembered for the next page.
import { asked, keep } from "../base/address.js";

const STORED = "ty-x";

// How much of an axis one step is; NaN where the job does not say what that takes.
// job: {total_steps, epochs, spec: {global_batch_size}}
const perStep = (axis, { total_steps, epochs, spec }) =>
  axis === "epoch" && epochs ? epochs / total_steps : axis === "examples" ? spec.global_batch_size || NaN : NaN;
export const knows = (job, axis) => axis === "step" || axis === "elapsed" || Number.isFinite(perStep(axis, job));

// The x of points that were said at `steps` and `times` (unix s), in order; none where the job does not know the axis.
// Time counts from `begun`. Clocks of two nodes may differ: a time before the last one is taken as that.
export function placed(steps, times, axis, job, begun) {
  if (axis === "step") return steps;
  let last = 0;
  if (axis === "elapsed")
    return times.map((t) => {
      last = Math.max(last, t - begun);
      return last;
    });
  const by = perStep(axis, job);
  return Number.isFinite(by) ? steps.map((s) => s * by) : [];
}

// The select of the page; `changed` is called at each choice.
export function chooser(select, changed) {
  for (const wanted of ["step", localStorage.getItem(STORED), asked.get("x")])
    if ([...select.options].some((o) => o.value === wanted)) select.value = wanted;
  if (select.value !== "step") keep("x", select.value);
  select.onchange = () => {
    localStorage.setItem(STORED, select.value);
    keep("x", select.value);
    changed();
  };
  return {
    // What to draw by: as chosen where one of the jobs knows the axis, or else steps.
    of(jobs) {
      for (const o of select.options) o.disabled = !jobs.some((job) => knows(job, o.value));
      return select.selectedOptions[0].disabled ? "step" : select.value;
    },
  };
}
