// How numbers, sizes, durations and moments are written. The same rules as templatetags/trainyard.py.
const NARROW = "\u202f",
  MINUS = "\u2212",
  MISSING = "–",
  MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
const WORDS = { NaN: "NaN", Infinity: "∞", "-Infinity": `${MINUS}∞` };
const two = (n) => String(n).padStart(2, "0");

export const group = (n) =>
  Math.round(n)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, NARROW)
    .replace("-", MINUS);

// JSON has no NaN and no infinity: they come as words.
export const num = (v) =>
  typeof v === "number" ? v : v === "NaN" ? NaN : v === "Infinity" ? Infinity : v === "-Infinity" ? -Infinity : null;

export function figure(v) {
  if (v == null) return MISSING;
  if (!Number.isFinite(v)) return WORDS[String(v)];
  const size = Math.abs(v);
  if (size >= 1000) return group(v);
  const text =
    size > 0 && size < 0.001
      ? v.toExponential(2).replace(/e([+-])(\d)$/, "e$10$2")
      : v.toFixed(size < 10 ? 4 : size < 100 ? 2 : 1);
  return text.replaceAll("-", MINUS);
}
export const percent = (v, digits = 1) => (Number.isFinite(v) ? `${v.toFixed(digits)}` : MISSING);
export function bytes(v) {
  if (!Number.isFinite(v)) return MISSING;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let power = 0;
  while (v >= 1000 && power < units.length - 1) {
    v /= 1000;
    power += 1;
  }
  return `${v.toFixed(!power || v >= 100 ? 0 : 1)}${NARROW}${units[power]}`;
}
export function span(s) {
  if (!Number.isFinite(s)) return MISSING;
  const whole = Math.max(0, Math.floor(s)),
    m = Math.floor(whole / 60),
    h = Math.floor(whole / 3600),
    d = Math.floor(whole / 86400);
  if (whole < 60) return `${whole} s`;
  if (d) return `${d} d ${h % 24} h`;
  return h ? `${h} h ${two(m % 60)} min` : `${m} min`;
}
export const clock = (date) => `${two(date.getHours())}:${two(date.getMinutes())}`;
export const seconds = (date) => `${clock(date)}:${two(date.getSeconds())}`;
export const exact = (date) => `${seconds(date)}.${Math.floor(date.getMilliseconds() / 100)}`;
export function moment(date, style = "short", now = new Date()) {
  if (style === "clock") return clock(date);
  if (style === "full") return `${date.getDate()} ${MONTHS[date.getMonth()]}, ${clock(date)}`;
  const day = (d) => new Date(d.getFullYear(), d.getMonth(), d.getDate()).getTime(),
    days = Math.round((day(now) - day(date)) / 864e5);
  return days === 0 ? clock(date) : days === 1 ? "Yesterday" : `${date.getDate()} ${MONTHS[date.getMonth()]}`;
}
// The server prints UTC; people read their own clock.
export function localTimes(root = document) {
  for (const t of root.querySelectorAll("time[data-when]")) {
    const date = new Date(t.dateTime);
    if (Number.isNaN(date.getTime())) continue;
    t.textContent = moment(date, t.dataset.when);
    t.title = date.toLocaleString();
  }
}
export const replicaName = (name) => name.replace(":", " ");
