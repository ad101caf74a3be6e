// Questions before anything is done, and short notes about what was done.

import { h } from "./dom.js";
import { act } from "./api.js";

// A dialog lies over the page, and makes all of it but itself inert: notes are shown in the uppermost one.
function placeToasts() {
  const toasts = document.getElementById("toasts");
  const home = [...document.querySelectorAll("dialog[open]")].at(-1) ?? document.body;
  if (toasts.parentElement !== home) home.append(toasts);
  return toasts;
}

function show(dialog, onClose = () => {}) {
  dialog.addEventListener("close", () => {
    placeToasts();
    dialog.remove();
    onClose();
  });
  document.body.append(dialog);
  dialog.showModal();
  placeToasts();
}

// A question belongs to the page that asked it: with the page it is gone, unanswered.
export function closeDialogs() {
  document.querySelectorAll("dialog[open]").forEach((dialog) => dialog.close());
}

export function ask({ title, text, confirm, danger = false, fields = [] }) {
  return new Promise((resolve) => {
    const inputs = fields.map((field) => field.input);
    const form = h(
      "form",
      { method: "dialog" },
      h("h2", { id: "ask-title" }, title),
      h("p", { class: "soft" }, text),
      fields.map((field) => h("label", { class: "field" }, field.label, field.input)),
      h(
        "footer",
        {},
        h("button", { value: "no", formnovalidate: true }, "Cancel"),
        h("button", { value: "yes", class: danger ? "danger" : "primary" }, confirm),
      ),
    );
    const dialog = h("dialog", { "aria-labelledby": "ask-title" }, form);
    show(dialog, () => resolve(dialog.returnValue === "yes" ? inputs.map((input) => input.value) : null));
    (inputs[0] ?? form.querySelector("button[value=yes]")).focus();
  });
}

export function sheet(title, content) {
  const close = h("button", { type: "button" }, "Close");
  const dialog = h(
    "dialog",
    { class: "sheet", "aria-labelledby": "sheet-title" },
    h("div", { class: "inner" }, h("div", { class: "sheet-head" }, h("h2", { id: "sheet-title", class: "mono" }, title), close), content),
  );
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  show(dialog);
  return dialog;
}

export function toast(text, isBad = false) {
  const note = h("div", { class: isBad ? "toast bad" : "toast" }, text);
  placeToasts().append(note);
  setTimeout(() => note.remove(), isBad ? 9000 : 5000);
}

// Asks, does it, and says what came of it; true if it was done.
export async function perform(question, name, order) {
  const answers = await ask(question);
  if (answers === null) return false;
  try {
    toast(await act(name, typeof order === "function" ? order(answers) : order));
    return true;
  } catch (error) {
    toast(error.hint ? `${error.message} (${error.hint})` : error.message, true);
    return false;
  }
}
