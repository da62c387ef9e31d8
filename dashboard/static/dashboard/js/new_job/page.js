// New job: the server works out what the form implies while it is filled in; this module asks, and puts the answer in
// place. Errors stand only at fields that were touched, until the form has been refused once: then at every field.
import { $, $$ } from "../base/dom.js";
import { complain } from "../base/toast.js";
import { keep, restore } from "./draft.js";
import { changed, check, whyNot } from "./preflight.js";

const form = $("#new-job"),
  WAIT_MS = 250,
  LONG_TEXT_WAIT_MS = 600;
const TOO_LARGE =
  "The form is larger than Trainyard takes. Shorten the program; data belongs in a folder on the nodes.";
const touched = new Set();
let all = "refused" in form.dataset,
  timer = 0,
  asked = 0,
  programKey = form.dataset.programKey,
  errors = {};
// A chosen file is sent until one answer speaks of it: a sound one then travels by its digest, of a bad one its error stays.
let fileTold = true,
  fileError = $("#f-upload-e").textContent;
// A file over the limit is never sent: the server would refuse the whole form with it. What stands here is why.
let fileRefused = "";

const values = () => {
  const data = new FormData(form);
  if (fileTold) data.delete("upload");
  return data;
};
function later(wait = WAIT_MS) {
  clearTimeout(timer);
  timer = setTimeout(ask, wait);
}
async function ask() {
  clearTimeout(timer);
  const data = values();
  const mine = ++asked;
  let answer;
  try {
    answer = await fetch(form.dataset.preview, { method: "POST", body: data, headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error(String(answer.status));
    answer = await answer.json();
  } catch (problem) {
    if (mine === asked) unanswered(problem);
    return;
  }
  if (mine !== asked) return;
  errors = answer.errors;
  if (data.has("upload")) {
    fileTold = true;
    fileError = errors.upload ?? "";
  } else if (errors.upload && fileError) errors.upload = fileError;
  if (fileRefused) errors.upload = fileRefused;
  if (answer.program_key !== programKey) {
    programKey = answer.program_key;
    const unfolded = !!$("#program details[open]");
    replace($("#program"), answer.program);
    if (unfolded) $("#program details")?.setAttribute("open", "");
  }
  replacePanel(answer.panel);
  replace($("#errors"), answer.error_list);
  for (const says of $$("[data-says]", form)) setText(says, answer.folds[says.dataset.says] ?? "");
  showErrors();
}
function unanswered(problem) {
  if (problem.message === "401" || problem.message === "403") return complain("Signed out", whyNot(401));
  if (problem.message === "413") return complain("Too large", TOO_LARGE);
  later(3000);
}
function refusal(file, maxBytes) {
  return file.size > maxBytes
    ? `${file.name} is larger than ${maxBytes / 1e6} MB and was not taken. Choose a smaller one; data belongs in a folder on the nodes.`
    : "";
}
const setText = (el, text) => {
  if (el.textContent !== text) el.textContent = text;
};
function replace(place, html) {
  if (place.innerHTML === html) return;
  const inside = place.contains(document.activeElement) && document.activeElement.id;
  place.innerHTML = html; // printed by our own templates, which escape
  if (inside) document.getElementById(inside)?.focus();
}
function replacePanel(html) {
  const panel = $("#panel"),
    chosen = $("#tf-of")?.value,
    inside = panel.contains(document.activeElement) && document.activeElement.id;
  panel.innerHTML = html;
  const select = $("#tf-of");
  if (select && chosen && [...select.options].some((o) => o.value === chosen)) {
    select.value = chosen;
    for (const p of $$("[data-tf-of]", panel)) p.hidden = p.dataset.tfOf !== chosen;
  }
  if (inside) document.getElementById(inside)?.focus();
}
function showErrors() {
  for (const place of $$("[data-field]", form)) {
    const name = place.dataset.field,
      control = $("input:not([type=hidden], [type=radio]), select, textarea:not([name=filename])", place) ?? place;
    // What was not filled in yet is listed beside Start job, and not held against anybody.
    const waits = control !== place && !control.value;
    const text = all || touched.has(name) || !waits ? (errors[name] ?? "") : "";
    const error = $(".invalid-feedback", place),
      help = $(".form-text", place);
    if (!error) continue;
    setText(error, text);
    error.hidden = !text;
    if (help) help.hidden = !!text;
    if (text) place.closest("details:not([open])")?.setAttribute("open", "");
    if (control === place) continue;
    control.classList.toggle("is-invalid", !!text && control.matches(".form-control, .form-select"));
    text ? control.setAttribute("aria-invalid", "true") : control.removeAttribute("aria-invalid");
    const described = text ? error.id : help?.id;
    described ? control.setAttribute("aria-describedby", described) : control.removeAttribute("aria-describedby");
  }
}
// A script is none of the catalogue's recipes.
function leaveCatalogue() {
  if ($("[name=kind]:checked", form)?.value === "script" && $("[name=source][value=recipe]", form).checked)
    $("[name=source][value=upload]", form).checked = true;
}

const asker = $("#check");
asker.addEventListener("click", async (e) => {
  e.preventDefault();
  asker.disabled = true;
  try {
    const found = await check(asker.formAction, values());
    if (Object.keys(found).length) {
      all = true;
      errors = found;
      showErrors();
      complain("Nothing was checked", found[""] || "Correct the fields in red.");
    }
  } catch (problem) {
    complain("Not checked", problem.message === "413" ? TOO_LARGE : whyNot(Number(problem.message)));
  }
  asker.disabled = false;
});
form.addEventListener("input", changed);
form.addEventListener("input", (e) => {
  if (["upload", "git_url", "git_ref", "git_path"].includes(e.target.name)) return; // asked for when they are complete
  later(e.target.name === "text" ? LONG_TEXT_WAIT_MS : WAIT_MS);
});
form.addEventListener("change", (e) => {
  const { name, type, files } = e.target;
  const place = e.target.closest("[data-field]")?.dataset.field;
  if (place) touched.add(place);
  if (name === "kind") leaveCatalogue();
  keep(form);
  if (type !== "file") return later(0);
  if (!files.length) return;
  touched.add("upload");
  fileRefused = refusal(files[0], Number(e.target.dataset.maxBytes));
  fileTold = !!fileRefused;
  if (fileRefused) {
    e.target.value = "";
    errors.upload = fileRefused;
    showErrors();
  }
  ask();
});
form.addEventListener("focusout", (e) => {
  const place = e.target.closest("[data-field]")?.dataset.field;
  if (place && !touched.has(place) && e.target.value) {
    touched.add(place);
    showErrors();
  }
});
// A line of the list leads to its field, and unfolds the part that it is in.
addEventListener("click", (e) => {
  const name = e.target.closest("[data-error]")?.dataset.error;
  if (name && lead(name)) e.preventDefault();
});
function lead(name) {
  const place = $(`[data-field="${CSS.escape(name)}"]`, form);
  if (!place) return false;
  place.closest("details")?.setAttribute("open", "");
  $("input:checked, input:not([type=hidden], [type=radio]), select, textarea:not([name=filename])", place)?.focus();
  return true;
}
addEventListener("click", (e) => {
  const use = e.target.closest("[data-use-batch]");
  if (!use) return;
  form.elements.global_batch_size.value = use.dataset.useBatch;
  form.elements.global_batch_size.closest("details").open = true;
  form.elements.global_batch_size.focus();
  later(0);
});
addEventListener("keydown", (e) => {
  if (e.key === "Enter" && (e.ctrlKey || e.metaKey) && !$("dialog[open]")) {
    e.preventDefault();
    form.requestSubmit($("#start"));
  }
});
form.addEventListener("submit", () => keep(form));
restore(form, $("#program"));
leaveCatalogue();
if (all) $("[aria-invalid]", form)?.focus();
if (location.hash.startsWith("#f-")) lead(location.hash.slice(3));
later(0);
