// The report of a strategy test: while the test goes on, its printed parts are fetched again every few seconds, and the
// curves of `compare.js` follow the jobs that they name.
import { $ } from "./base/dom.js";
import { refresher, swapAll } from "./base/parts.js";

const EVERY_MS = 5000,
  charts = $("[data-compare]");
const renew = refresher(charts.dataset.state, {
  put(parts) {
    swapAll(parts);
    const { ids } = $("#test-head").dataset;
    if (ids !== charts.dataset.compare) charts.dataset.compare = ids;
  },
});
setInterval(() => "goingOn" in $("#test-head").dataset && renew(), EVERY_MS);
