// The description of REST is drawn by Swagger's script: what it leaves out for those who do not see it is added here.
const page = document.getElementById("swagger-ui");
const named = (el) => el.closest("tr")?.querySelector(".parameter__name")?.textContent || "Choice";
const missing = {
  "h3.opblock-tag, .models > h4": ["aria-level", () => "2"],
  ".opblock h4": ["aria-level", () => "3"],
  ".opblock h5": ["aria-level", () => "4"],
  "pre.microlight, .highlight-code pre": ["tabindex", () => "0"],
  "table[role=region]": ["aria-label", (el) => el.id.replaceAll("_", " ")],
  "select:not([aria-label])": ["aria-label", named],
};
new MutationObserver(() => {
  for (const [what, [name, value]] of Object.entries(missing))
    for (const el of page.querySelectorAll(what)) if (!el.hasAttribute(name)) el.setAttribute(name, value(el));
}).observe(page, { childList: true, subtree: true });
