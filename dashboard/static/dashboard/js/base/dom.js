// Small helpers of every module. What people wrote is only ever set as text.
export const $ = (s, r = document) => r.querySelector(s);
export const $$ = (s, r = document) => [...r.querySelectorAll(s)];
const SPRITE = new URL("../../icons.svg", import.meta.url).pathname,
  SVG = "http://www.w3.org/2000/svg";

export function make(tag, attributes = {}, ...children) {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    if (value !== false && value != null) el.setAttribute(name, value === true ? "" : value);
  el.append(...children);
  return el;
}
export function svg(tag, attributes = {}, ...children) {
  const el = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) el.setAttribute(name, value);
  el.append(...children);
  return el;
}
export const icon = (name, css = "ty-ico") =>
  svg("svg", { class: css, "aria-hidden": "true" }, svg("use", { href: `${SPRITE}#${name}` }));

// Puts a freshly printed part of the page in the place of the old one, when it differs; focus stays where it was.
export function swap(fresh) {
  const old = document.getElementById(fresh.id);
  if (!old || old.isEqualNode(fresh)) return false;
  const had = document.activeElement,
    inside = old.contains(had),
    open = new Set($$("details[open]", old).map((d) => d.id));
  const targets = (root) => $$("a, button, input, select, summary, [tabindex]", root),
    at = inside ? targets(old).indexOf(had) : -1;
  const { scrollLeft, scrollTop } = old;
  old.replaceWith(fresh);
  Object.assign(fresh, { scrollLeft, scrollTop });
  for (const d of $$("details", fresh)) d.open ||= open.has(d.id);
  if (inside)
    ((had.id && document.getElementById(had.id)) || targets(fresh)[at] || document.getElementById("main"))?.focus({
      preventScroll: true,
    });
  return true;
}
// An answer of another version than this page: its parts and modules may not fit, so the page offers to be loaded again.
export function outdated() {
  const notice = $("#updated");
  if (notice) notice.hidden = false;
}
export function sameVersion(answer) {
  if ((answer.headers.get("Trainyard-Version") ?? "") !== ($("#updated")?.dataset.version ?? "")) outdated();
  return answer;
}
// A page or its parts, as the server prints them now. The side bar's counts, which come with either, are put in place.
export async function fetchParts(url) {
  const answer = sameVersion(await fetch(url, { headers: { Accept: "text/html" }, credentials: "same-origin" }));
  if (!answer.ok) throw new Error(`${url} answered ${answer.status}`);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const each of $$("[id^=count-]", page)) swap(each);
  return [...page.body.children].map((el) => document.adoptNode(el));
}
