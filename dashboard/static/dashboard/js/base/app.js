// Behaviour that every page shares: theme, drawer, dialogs, menus, copying, shortcuts, tables, section links.
import { $, $$, outdated } from "./dom.js";
import { localTimes } from "./format.js";
import { live } from "./live.js";
import { copy, tendPrinted } from "./toast.js";

const root = document.documentElement;

const open = (id) => {
  const d = document.getElementById(id);
  if (d && !d.open) d.showModal();
};
// A browser gives the focus back to the button that opened a dialog; one in a menu, which is closed now, to its menu.
const back = (d, opener) => {
  const menu = opener.closest("details.ty-menu");
  if (menu) d.addEventListener("close", () => $("summary", menu).focus(), { once: true });
};
function theme() {
  root.dataset.bsTheme = root.dataset.bsTheme === "dark" ? "light" : "dark";
  localStorage.setItem("ty-theme", root.dataset.bsTheme);
}
function drawer(on) {
  const side = $("#side"),
    button = $("[data-do=menu]");
  if (!side || !button) return;
  side.classList.toggle("is-open", on);
  button.setAttribute("aria-expanded", String(on));
  if (on) $("a", side)?.focus();
}
const actions = {
  theme,
  keys: () => open("keys"),
  palette: () => import("./palette.js").then((module) => module.palette(actions), outdated),
  reload: () => location.reload(),
  live: () => live.toggle(),
  menu: () => drawer(!$("#side").classList.contains("is-open")),
};

addEventListener("click", (e) => {
  const b = e.target.closest("[data-do], [data-open], [data-close], [data-copy]");
  for (const d of $$("details.ty-menu[open]"))
    if (!d.contains(e.target) || e.target.closest(".ty-menu-list > *")) d.open = false;
  if (e.target.matches("dialog.ty-dialog")) e.target.close();
  if (!b) return;
  const d = b.dataset;
  if (d.do) actions[d.do]?.(b);
  if (d.open) {
    e.preventDefault();
    open(d.open);
    back(document.getElementById(d.open), b);
  }
  if ("close" in d) b.closest("dialog")?.close();
  if (d.copy) copy($(d.copy).textContent.trim(), "Copied");
});
// A pressed button says so until the answer comes, and cannot be pressed twice.
const press = (buttons, on) => {
  for (const b of buttons) b.disabled = on;
};
addEventListener("submit", (e) => {
  const buttons = [...e.target.elements].filter((el) => el.type === "submit");
  if (e.target.method === "post") setTimeout(() => press(buttons, true));
});
addEventListener("pageshow", (e) => {
  if (e.persisted) press($$("button[type=submit]"), false);
});
addEventListener("keydown", (e) => {
  if (e.key !== "Escape") return;
  $$("details.ty-menu[open]").forEach((d) => {
    d.open = false;
    $("summary", d).focus();
  });
  if ($("#side")?.classList.contains("is-open")) {
    drawer(false);
    $("[data-do=menu]").focus();
  }
});
addEventListener("pointerdown", (e) => {
  const s = $("#side.is-open");
  if (s && !s.contains(e.target) && !e.target.closest("[data-do=menu]")) drawer(false);
});
// A dialog that asks for a typed name enables its button only on a match.
for (const i of $$("[data-must-match]"))
  i.addEventListener("input", () => {
    $("[type=submit]", i.form).disabled = i.value !== i.dataset.mustMatch;
  });

// Shortcuts. Single letters can be turned off (WCAG 2.1.4).
if (/Mac/.test(navigator.platform)) for (const k of $$("[data-mod]")) k.textContent = "⌘ K";
const letters = $("[data-keys-on]");
if (letters) {
  letters.checked = localStorage.getItem("ty-keys") !== "off";
  letters.onchange = () => localStorage.setItem("ty-keys", letters.checked ? "on" : "off");
}
const visit = (key) => {
  const a = { o: "Overview", j: "Jobs", c: "Clusters" }[key],
    link = a && $(`#side a[title="${a}"]`);
  if (link) location.assign(link.href);
  return !!link;
};
let chord = 0;
addEventListener("keydown", (e) => {
  if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "k") {
    e.preventDefault();
    return actions.palette();
  }
  if (
    e.ctrlKey ||
    e.metaKey ||
    e.altKey ||
    letters?.checked === false ||
    e.target.matches("input, select, textarea, [contenteditable]") ||
    $("dialog[open]")
  )
    return;
  if (chord && Date.now() - chord < 900) {
    chord = 0;
    if (visit(e.key)) return;
  }
  const keys = {
    "?": actions.keys,
    t: theme,
    ".": actions.live,
    g: () => {
      chord = Date.now();
    },
    j: () => step(1),
    k: () => step(-1),
    x: () => $("input[type=checkbox]", document.activeElement.closest("tr") ?? document.createElement("tr"))?.click(),
    n: () => {
      const to = $("#palette")?.dataset.newJob;
      if (to) location.assign(to);
    },
    "/": () => {
      const f = $("main input[type=search]");
      if (f) {
        e.preventDefault();
        f.focus();
      }
    },
  };
  keys[e.key]?.();
});

// Tables: j and k move between the rows' links; a plain click anywhere on a row opens it.
function step(by) {
  const all = $$("table.is-rows .row-link"),
    at = all.indexOf($(".row-link", document.activeElement.closest("tr") ?? document.createElement("tr")));
  all[Math.max(0, Math.min(all.length - 1, at + by))]?.focus();
}
addEventListener("click", (e) => {
  if (e.target.closest("a, button, input, label, select, summary") || String(getSelection())) return;
  $(".row-link", e.target.closest("table.is-rows tbody tr") ?? document.createElement("tr"))?.click();
});

// Section links follow the scroll.
const links = $$(".ty-subnav a[href^='#']");
if (links.length) {
  let due = 0;
  const spy = () => {
    due = 0;
    const now = links.filter((a) => $(a.hash)?.getClientRects()[0]?.top < innerHeight * 0.3).pop() ?? links[0];
    for (const a of links) a === now ? a.setAttribute("aria-current", "true") : a.removeAttribute("aria-current");
  };
  const plan = () => {
    if (!due) due = requestAnimationFrame(spy);
  };
  addEventListener("scroll", plan, { passive: true });
  spy();
}
// One <pre> per replica behind a select; delegated, so that it holds for parts that were fetched again.
addEventListener("input", (e) => {
  if (e.target.matches("[data-tf]")) for (const p of $$("[data-tf-of]")) p.hidden = p.dataset.tfOf !== e.target.value;
  if (e.target.matches("[data-submit]")) e.target.form.requestSubmit();
});
tendPrinted();
localTimes();
