// What was typed into a form stays with its place in the browser's history, so that Back finds it again: also fields
// that browsers do not restore (autocomplete off), and those the server printed for a program chosen meanwhile.
import { make } from "../base/dom.js";

const UNKEPT = new Set(["csrfmiddlewaretoken", "do"]);

export function keep(form) {
  const draft = [...new FormData(form)].filter(([name, value]) => typeof value === "string" && !UNKEPT.has(name));
  try {
    history.replaceState({ ...history.state, draft }, "");
  } catch {
    /* larger than this browser keeps */
  }
}
// Puts back what was kept, if this page was come back to; whether it did. A value whose field is not on the page now (a
// hyper-parameter of another program) is put into `place`, and so goes into the next question to the server.
export function restore(form, place) {
  const came = performance.getEntriesByType("navigation")[0]?.type;
  if (came !== "back_forward" || !history.state?.draft) return false;
  const typed = new URLSearchParams(history.state.draft);
  // The page came with the hyper-parameters of its first program.
  for (const el of form.elements) if (place.contains(el) && !typed.has(el.name)) el.disabled = true;
  for (const name of new Set(typed.keys())) {
    const values = typed.getAll(name),
      controls = [...form.elements].filter((el) => el.name === name);
    if (!controls.length) place.append(make("input", { type: "hidden", name, value: values.at(-1) }));
    for (const el of controls) put(el, values, place);
  }
  return true;
}
function put(el, values, place) {
  const chosen = values.includes(el.value);
  if (el.type === "radio" || el.type === "checkbox") {
    if (el.checked !== chosen) unfold(el);
    el.checked = chosen;
  } else if (el.type !== "file" && (el.type !== "hidden" || place.contains(el))) {
    if (el.type !== "hidden" && el.value !== values.at(-1)) unfold(el);
    el.value = values.at(-1);
  }
}
// A folded part of the form is unfolded where something stands in it that the page did not come with.
const unfold = (el) => el.closest("details")?.setAttribute("open", "");
