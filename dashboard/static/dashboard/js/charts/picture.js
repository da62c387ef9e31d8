// A chart as a picture to take away, loaded when it is first asked for.
import { make } from "../base/dom.js";
import { css } from "./look.js";

// The plot as it stands, on the page's ground.
export function savePicture({ u, title }) {
  if (!u) return;
  const { canvas } = u.ctx,
    copy = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height }),
    ctx = copy.getContext("2d");
  ctx.fillStyle = css("--ty-surface");
  ctx.fillRect(0, 0, copy.width, copy.height);
  ctx.drawImage(canvas, 0, 0);
  copy.toBlob((blob) => {
    const href = URL.createObjectURL(blob);
    make("a", { href, download: `${title}.png` }).click();
    setTimeout(() => URL.revokeObjectURL(href), 1000);
  });
}
