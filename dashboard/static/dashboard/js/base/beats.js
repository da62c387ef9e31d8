// "2 s ago": counts on by itself, and begins anew whenever a node is heard of.
import { $, $$ } from "./dom.js";
import { span } from "./format.js";
import { live, setText } from "./live.js";

const at = (el) => new Date(el.dataset.beat).getTime();

export function heard(root) {
  const el = $("[data-beat]", root);
  if (el) el.dataset.beat = new Date().toISOString();
}
export function beats() {
  setInterval(() => {
    if (document.hidden || !live.on) return;
    for (const el of $$("[data-beat]")) if (at(el)) setText(el, `${span((Date.now() - at(el)) / 1000)} ago`);
  }, 1000);
}
