// Parts of a page that the server prints: fetched again when an event says that they changed, each put in the place of
// the old one. One request at a time; what is asked meanwhile, or while held, is done afterwards.
import { fetchParts, swap } from "./dom.js";
import { localTimes } from "./format.js";
import { live } from "./live.js";

// After an answer that came too late or not at all: what is fetched is exchanged, also a button under somebody's finger.
const AGAIN_MS = 2000;

// Puts each part in the place of the one with its id; returns those that differed.
export const swapAll = (parts) => parts.filter((part) => part.id && swap(part));

export function refresher(url, { put = swapAll, pause = 300 } = {}) {
  let busy = false,
    again = false,
    timer = 0;
  async function run() {
    timer = 0;
    again = !live.on || document.hidden;
    if (again) return;
    busy = true;
    try {
      const parts = await fetchParts(url);
      for (const part of parts) localTimes(part);
      put(parts);
    } catch {
      again = true;
    }
    busy = false;
    if (again) plan(AGAIN_MS);
  }
  const plan = (wait = pause) => {
    if (busy) again = true;
    else if (!timer) timer = setTimeout(run, wait);
  };
  live.watch(() => live.on && again && !busy && plan());
  document.addEventListener("visibilitychange", () => !document.hidden && again && !busy && plan());
  return () => plan();
}
