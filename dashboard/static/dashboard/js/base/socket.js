// A feed of live events: the server joins the page to a group, sends one snapshot, then what is newer. After a lost
// connection the next one begins with a fresh snapshot, which fills the gap; a page that notices a hole asks for one.
import { live } from "./live.js";

const FIRST_MS = 400,
  LONGEST_MS = 10_000,
  SIGN_IN_AGAIN = 4401,
  NO_SUCH_THING = 4404;

export function feed(path, { snapshot, events }) {
  let socket = null,
    wait = FIRST_MS,
    timer = 0,
    ended = false;
  const addressOf = (to) => {
    const url = new URL(to, location.href);
    url.protocol = url.protocol.replace("http", "ws");
    return url;
  };
  let url = addressOf(path);

  function open() {
    clearTimeout(timer);
    timer = 0;
    const mine = new WebSocket(url);
    socket = mine;
    mine.onmessage = (message) => {
      if (mine !== socket) return;
      const data = JSON.parse(message.data);
      if (data.type === "snapshot") {
        wait = FIRST_MS;
        snapshot(data);
        live.connection("live");
      }
      if (data.type === "events") events(data.events);
    };
    mine.onclose = (e) => {
      if (mine === socket && !ended) closed(e.code);
    };
  }
  function closed(code) {
    socket = null;
    if (code === SIGN_IN_AGAIN || code === NO_SUCH_THING) {
      ended = true;
      return location.reload();
    }
    live.connection("lost");
    timer = setTimeout(open, wait * (0.75 + Math.random() / 2));
    wait = Math.min(wait * 2, LONGEST_MS);
  }
  const again = (to) => {
    if (to) url = addressOf(to);
    const old = socket;
    socket = null;
    old?.close();
    open();
  };
  addEventListener("online", () => !ended && !socket && open());
  document.addEventListener("visibilitychange", () => !document.hidden && timer && open());
  addEventListener("pagehide", () => {
    ended = true;
    socket?.close();
  });
  addEventListener("pageshow", (e) => {
    if (e.persisted) {
      ended = false;
      again();
    }
  });
  open();
  return { again };
}
