// Messages at the corner: what happened. They go after 6 s, are held under the pointer or focus, and can be sent away.
import { $, $$, icon, make } from "./dom.js";

// What went wrong, and what to do.
export const complain = (title, text) => toast(title, text, "red", "warning");
// To the clipboard, which a browser grants to a page at a secure address only.
export async function copy(text, done, more) {
  try {
    await navigator.clipboard.writeText(text);
    toast(done, more);
  } catch {
    complain("Copy failed", "The browser does not allow it here. Copy it by hand.");
  }
}
export function toast(title, text = "", tone = "grey", shape = "info") {
  const t = make("div", { class: "ty-toast", "data-tone": tone }, icon(shape), make("strong", {}, title));
  if (text) t.append(make("p", {}, text));
  $(".ty-toasts").append(t);
  tend(t);
}
function tend(t) {
  const button = make(
    "button",
    { class: "btn btn-quiet btn-sm btn-icon", type: "button", "aria-label": "Dismiss" },
    icon("x"),
  );
  button.onclick = () => t.remove();
  $("strong", t).after(button);
  let timer;
  const start = () => {
    timer = setTimeout(() => t.remove(), 6000);
  };
  const hold = () => clearTimeout(timer);
  t.onpointerenter = t.onfocusin = hold;
  t.onpointerleave = t.onfocusout = start;
  start();
}
export const tendPrinted = () => $$(".ty-toasts .ty-toast:not([hidden])").forEach(tend);
