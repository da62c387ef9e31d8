// Sign-in: the password may be looked at while it is typed.
import { $ } from "./base/dom.js";

const button = $("[data-show]"),
  field = $(button.dataset.show);
button.hidden = false;
button.onclick = () => {
  const on = field.type === "password";
  field.type = on ? "text" : "password";
  button.setAttribute("aria-pressed", String(on));
  field.focus();
};
// The browser remembers a password field, never a text field.
field.form.addEventListener("submit", () => {
  field.type = "password";
});
