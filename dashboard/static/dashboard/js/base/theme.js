// Runs before first paint, so it is no module: the theme a person chose, else the one of their system.
(() => {
  var saved = new URLSearchParams(location.search).get("theme") || localStorage.getItem("ty-theme") || "auto";
  var dark = saved === "dark" || (saved === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.setAttribute("data-bs-theme", dark ? "dark" : "light");
})();
