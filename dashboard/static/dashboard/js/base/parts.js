// Parts of a page that the server prints: fetched again when an event says that they changed, each put in the place of
// the old one. One request at a time; what is asked meanwhile, or while held, is done afterwards.
import { fetchParts, swap } from "./dom.js";
import { localTimes } from "./format.js";
import { live } from "./live.js";

export function refresher(url, done = () => {}, pause = 150) {
  let busy = false, again = false, timer = 0;
  async function run() {
    timer = 0;
    if (!live.on || document.hidden) { again = true; return; }
    busy = true; again = false;
    try {
      const parts = await fetchParts(url);
      parts.forEach((part) => localTimes(part));
      const fresh = parts.filter((part) => part.id && swap(part));
      done(parts, fresh);
    } catch { again = true; }
    busy = false;
    if (again) plan(2000);
  }
  const plan = (wait = pause) => { if (busy) again = true; else timer ||= setTimeout(run, wait); };
  live.watch(() => live.on && again && !busy && plan());
  document.addEventListener("visibilitychange", () => !document.hidden && again && !busy && plan());
  return () => plan();
}
