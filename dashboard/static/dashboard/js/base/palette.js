// Search and commands (Ctrl K), and the search for a job to compare: a combobox over a listbox; focus stays in the field.
// Places come from the side bar, jobs and nodes from the server while one types.
import { $, $$, icon, make } from "./dom.js";

const PAUSE_MS = 140,
  SHOWN = 9;

export function palette(actions) {
  const dialog = document.getElementById("palette");
  if (!dialog) return;
  const places = $$("a[data-palette]").map((a) => ({
    icon: a.dataset.palette,
    label: a.title,
    hint: "",
    href: a.href,
  }));
  if (dialog.dataset.newJob)
    places.splice(2, 0, { icon: "plus", label: "New job", hint: "n", href: dialog.dataset.newJob });
  places.push(
    { icon: "moon", label: "Switch theme", hint: "t", run: actions.theme },
    { icon: "keyboard", label: "Keyboard shortcuts", hint: "?", run: actions.keys },
  );
  search(dialog, places, (hit) => (hit.href ? location.assign(hit.href) : hit.run()));
}
// One of the places, or of what the server finds: [{icon, label, hint, …}].
export function search(dialog, places, choose) {
  if (dialog.open) return;
  dialog.showModal();
  const input = $("input", dialog),
    list = $("ul", dialog);
  let found = [],
    hits = [],
    at = 0,
    timer = 0,
    asked = 0;

  const go = (hit) => {
    if (!hit) return;
    dialog.close();
    choose(hit);
  };
  function paint() {
    const q = input.value.trim().toLowerCase();
    hits = [...places.filter((p) => p.label.toLowerCase().includes(q)), ...found].slice(0, SHOWN);
    at = Math.max(0, Math.min(at, hits.length - 1));
    list.replaceChildren(
      ...hits.map((hit, i) => {
        const li = make(
          "li",
          { role: "option", id: `${list.id}-${i}`, "aria-selected": String(i === at) },
          icon(hit.icon),
          make("span", { class: "trunc" }, hit.label),
          make("span", { class: "hint" }, hit.hint),
        );
        li.onclick = () => go(hit);
        li.onpointermove = () => {
          if (at !== i) {
            at = i;
            mark();
          }
        };
        return li;
      }),
    );
    if (!hits.length)
      list.append(
        make(
          "li",
          { role: "option", "aria-selected": "false", "aria-disabled": "true" },
          `Nothing named “${input.value.trim()}”. Try ${dialog.dataset.try}.`,
        ),
      );
    mark();
  }
  function mark() {
    for (const [i, li] of $$("li[id]", list).entries()) li.setAttribute("aria-selected", String(i === at));
    hits.length
      ? input.setAttribute("aria-activedescendant", `${list.id}-${at}`)
      : input.removeAttribute("aria-activedescendant");
    list.children[at]?.scrollIntoView({ block: "nearest" });
  }
  async function ask() {
    const mine = ++asked,
      url = new URL(dialog.dataset.find, location.href);
    url.searchParams.set("q", input.value.trim());
    const answer = await fetch(url, { headers: { Accept: "application/json" } }).catch(() => null);
    if (!answer?.ok || mine !== asked) return;
    found = (await answer.json()).items;
    paint();
  }
  input.value = "";
  paint();
  ask();
  input.focus();
  input.oninput = () => {
    at = 0;
    paint();
    clearTimeout(timer);
    timer = setTimeout(ask, PAUSE_MS);
  };
  input.onkeydown = (e) => {
    if (e.key === "ArrowDown" || e.key === "ArrowUp") {
      e.preventDefault();
      at = (at + (e.key === "ArrowDown" ? 1 : -1) + hits.length) % (hits.length || 1);
      mark();
    }
    if (e.key === "Enter") {
      e.preventDefault();
      go(hits[at]);
    }
  };
}
