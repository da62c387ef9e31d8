// The only way to write a live number. Writes are collected and flushed once per animation frame, and a node is
// touched only when its text really changed; widths are held by CSS, so nothing moves.
const queue = new Map();
let frame = 0;
export function setText(el, text) {
  if (!el) return;
  queue.set(el, String(text));
  if (!frame) frame = requestAnimationFrame(flush);
}
function flush() {
  frame = 0;
  for (const [el, text] of queue) if (el.textContent !== text) el.textContent = text;
  queue.clear();
}

// Live or held: a person may stop what moves; what arrives meanwhile is kept and shown when they go on.
const watchers = new Set();
export const live = {
  on: true,
  link: "live",
  toggle() {
    live.on = !live.on;
    tell();
  },
  connection(word) {
    live.link = word;
    tell();
  },
  watch(fn) {
    watchers.add(fn);
  },
};
function tell() {
  for (const b of document.querySelectorAll("[data-do=live]")) {
    b.setAttribute("aria-pressed", String(live.on));
    b.classList.toggle("is-lost", live.link !== "live");
    setText(b.querySelector("span"), !live.on ? "Held" : live.link === "live" ? "Live" : "Reconnecting");
  }
  for (const fn of watchers) fn(live);
}

// At most four times a second, in one animation frame, and not at all in a hidden tab or while held.
export function painter(draw, every = 250) {
  let timer = 0,
    last = 0,
    dirty = false;
  const run = () => {
    timer = 0;
    if (!dirty || document.hidden || !live.on) return;
    dirty = false;
    last = performance.now();
    requestAnimationFrame(draw);
  };
  const plan = () => {
    dirty = true;
    if (!timer) timer = setTimeout(run, Math.max(0, every - (performance.now() - last)));
  };
  document.addEventListener("visibilitychange", () => !document.hidden && dirty && plan());
  live.watch(() => live.on && dirty && plan());
  return plan;
}
// Only changes of state are said aloud, never numbers.
export const say = (text) => setText(document.getElementById("said"), text);
