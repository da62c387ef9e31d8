// The colours and the type of what is drawn on a canvas, read from the page's style sheets.
export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const fade = (colour, percent) => `color-mix(in srgb, ${colour} ${percent}%, transparent)`;
export const family = () => getComputedStyle(document.body).fontFamily;
