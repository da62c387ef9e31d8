// The log viewer: a window of lines that follows the end, with find, replica and level filters. Text only as text.
import { $, $$, make } from "../base/dom.js";
import { exact, replicaName } from "../base/format.js";
import { live } from "../base/live.js";

const WINDOW = 2000,
  LONGEST = 4000,
  NEAR = 8;

export function logViewer(root, placeOf) {
  const body = $(".ty-log-body", root),
    find = $("[data-log-find]", root),
    who = $("[data-log-who]", root),
    least = $("[data-log-level]", root),
    follow = $("[data-log-follow]", root),
    wrap = $("[data-log-wrap]", root),
    error = new RegExp(root.dataset.error),
    warning = new RegExp(root.dataset.warning),
    traceback = new RegExp(root.dataset.traceback),
    // By process: 1 in a traceback, 2 in its exception's message, as in `log_lines.py`.
    parts = new Map();
  let waiting = [],
    frame = 0,
    dropped = 0,
    attempt = 1,
    moving = false;
  const open = new Map();

  const shown = (l) =>
    (!who.value || l.dataset.who === who.value) &&
    (!least.value || least.value.includes(l.dataset.level) || (least.value === "W" && l.dataset.level === "E")) &&
    (!find.value || $(".m", l).textContent.toLowerCase().includes(find.value.toLowerCase()));
  const filter = () => {
    for (const l of $$(".ty-line", body)) l.hidden = !shown(l);
    if (following()) toEnd();
  };
  const following = () => follow.getAttribute("aria-pressed") === "true";
  const toEnd = () => {
    moving = true;
    body.scrollTop = body.scrollHeight;
    requestAnimationFrame(() => {
      moving = false;
    });
  };

  function levelOf({ replica, attempt, text }) {
    const who = `${replica} ${attempt}`,
      part = parts.get(who) ?? 0,
      next = traceback.test(text) ? 1 : !part || /^(\s|$)/.test(text) ? part : (part + 1) % 3;
    parts.set(who, next);
    return next || error.test(text) ? "E" : warning.test(text) ? "W" : "I";
  }
  // A line before the first one of a later attempt.
  function marked(line) {
    if (!(line.attempt > attempt)) return [element(line)];
    attempt = line.attempt;
    return [make("div", { class: "ty-log-sep is-restart" }, `Attempt ${attempt}`), element(line)];
  }
  function element(line) {
    const { at, replica, text } = line,
      lv = levelOf(line),
      words =
        text.length > LONGEST
          ? `${text.slice(0, LONGEST)}… (${text.length - LONGEST} characters more are in the log)`
          : text;
    const m = make("span", { class: "m" });
    if (lv !== "I") m.append(make("span", { class: "lv" }, lv === "W" ? "warning" : "error"));
    m.append(words);
    const l = make(
      "div",
      { class: `ty-line s${(placeOf(replica) % 8) + 1}`, "data-level": lv, "data-who": replica },
      make("span", { class: "t" }, exact(new Date(at * 1000))),
      make("span", { class: "src" }, make("span", { class: "ty-key" }), replicaName(replica)),
      m,
    );
    l.hidden = !shown(l);
    return l;
  }
  function flush() {
    frame = 0;
    if (!live.on || !waiting.length) return;
    const fresh = waiting.slice(-WINDOW);
    dropped += waiting.length - fresh.length;
    waiting = [];
    $("p.ty-log-sep", body)?.remove();
    body.append(...fresh.flatMap(marked));
    const lines = body.getElementsByClassName("ty-line");
    while (lines.length > WINDOW) {
      lines[0].remove();
      dropped++;
    }
    if (dropped) {
      const note = $("div.is-cut", body) ?? make("div", { class: "ty-log-sep is-cut" });
      note.textContent = "Earlier lines are in the downloaded log";
      body.prepend(note);
    }
    if (following()) toEnd();
  }
  const plan = () => {
    if (!frame) frame = requestAnimationFrame(flush);
  };
  live.watch(plan);
  for (const input of [find, who, least]) input.addEventListener("input", filter);
  wrap.addEventListener("click", () => wrap.setAttribute("aria-pressed", String(root.classList.toggle("is-wrap"))));
  follow.addEventListener("click", () => {
    follow.setAttribute("aria-pressed", String(!following()));
    if (following()) toEnd();
  });
  body.addEventListener(
    "scroll",
    () => {
      if (!moving)
        follow.setAttribute("aria-pressed", String(body.scrollTop + body.clientHeight > body.scrollHeight - NEAR));
    },
    { passive: true },
  );
  toEnd();
  return {
    reset(lines) {
      open.clear();
      waiting = [];
      dropped = 0;
      attempt = 1;
      parts.clear();
      body.replaceChildren();
      waiting.push(...lines);
      plan();
      if (!lines.length) body.append(make("p", { class: "ty-log-sep" }, "No output"));
    },
    // Output arrives in pieces: the end of one may be the middle of a line.
    add({ at, replica, attempt, replica_id, text }) {
      for (const [id, rest] of open)
        if (rest.attempt < attempt) {
          if (rest.text) waiting.push(rest);
          open.delete(id);
        }
      const pieces = ((open.get(replica_id)?.text ?? "") + text).split("\n");
      open.set(replica_id, { at, replica, attempt, text: pieces.pop() });
      for (const piece of pieces) waiting.push({ at, replica, attempt, text: piece });
      plan();
    },
    choose(replica, errors = false) {
      who.value = replica;
      least.value = errors ? "E" : "";
      filter();
      if (errors) {
        const first = $$(".ty-line[data-level=E]", body).find((l) => !l.hidden);
        first?.scrollIntoView({ block: "center" });
      }
    },
    replicas(names) {
      const had = who.value;
      who.replaceChildren(
        make("option", { value: "" }, "All replicas"),
        ...names.map((n) => make("option", { value: n }, replicaName(n))),
      );
      who.value = names.includes(had) ? had : "";
    },
  };
}
