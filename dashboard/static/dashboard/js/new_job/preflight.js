// A check on the nodes: begun with the form as it stands, fetched until every node has answered, shown in its place. Once
// the form is changed, the answer is of a form that was.
import { $, fetchParts } from "../base/dom.js";
import { localTimes } from "../base/format.js";
import { complain } from "../base/toast.js";
export const whyNot = (status) =>
  status === 401 || status === 403
    ? "Sign in again in another tab; what you typed stays here."
    : "The control plane did not answer. Try again.";
const AGAIN_MS = 700,
  place = $("#preflight-place");
let mine = 0;

// Resolves with the errors by field when there is nothing to ask the nodes yet.
export async function check(url, data) {
  const asked = ++mine;
  const answer = await fetch(url, { method: "POST", body: data, headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error(String(answer.status));
  const { errors = {}, url: state } = await answer.json();
  if (state) follow(state, asked);
  return errors;
}
export function changed() {
  const shown = $("#preflight", place);
  if (!shown || $("[data-stale]", place)) return;
  const note = document.createElement("p");
  note.className = "small muted";
  note.dataset.stale = "";
  note.textContent = "The form has been changed since: check again.";
  place.append(note);
}
// Once cancelled it is forgotten.
place.addEventListener("click", async (e) => {
  const button = e.target.closest("[data-cancel]");
  if (!button) return;
  e.preventDefault();
  if (button.disabled) return;
  button.disabled = true;
  const body = new FormData();
  body.set("csrfmiddlewaretoken", $("[name=csrfmiddlewaretoken]", button.form).value);
  const answer = await fetch(button.formAction, {
    method: "POST",
    body,
    headers: { Accept: "application/json" },
  }).catch(() => null);
  if (answer?.status !== 204 && answer?.status !== 404) {
    button.disabled = false;
    return complain("Not cancelled", whyNot(answer?.status));
  }
  mine++;
  place.replaceChildren();
  $("#check").focus();
});
async function follow(url, asked) {
  if (asked !== mine) return;
  let again = true;
  try {
    const parts = await fetchParts(url);
    if (asked !== mine) return;
    const fresh = parts.find((part) => part.id === "preflight"),
      stale = $("[data-stale]", place);
    localTimes(fresh);
    again = fresh.dataset.state === "running";
    const old = $("#preflight", place);
    if (!old || !old.isEqualNode(fresh))
      place.replaceChildren(fresh, ...(old && stale && old.dataset.url === url ? [stale] : []));
  } catch {
    /* asked again */
  }
  if (again) setTimeout(() => follow(url, asked), AGAIN_MS);
}
