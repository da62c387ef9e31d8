// What the page's address asks for, kept there as it is changed: a reload or a link shows the same.
export const asked = new URLSearchParams(location.search);

export function keep(name, value) {
  value ? asked.set(name, value) : asked.delete(name);
  history.replaceState(
    null,
    "",
    `${location.pathname}${asked.size ? `?${String(asked).replaceAll("%2C", ",")}` : ""}${location.hash}`,
  );
}
