/* One switch per page for the code of all cells: off at first, remembered from page to page. Without
   this script each mark opens its own cell. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const folds = document.querySelectorAll("details.hide.above-input");
  const bar = document.querySelector(".article-header-buttons");
  if (!folds.length || !bar) return;
  const memory = {
    get shown() { try { return localStorage.getItem("rm-code") === "shown"; } catch { return false; } },
    set shown(yes) { try { localStorage.setItem("rm-code", yes ? "shown" : "folded"); } catch { /* a file */ } },
  };
  const button = Object.assign(document.createElement("button"), {
    type: "button", className: "btn rm-code", textContent: "</>" });
  function show(yes) {
    for (const fold of folds) fold.open = yes;
    button.setAttribute("aria-pressed", yes);
    button.setAttribute("aria-label", "Show the code of this page");
    button.title = yes ? "Hide the code of this page" : "Show the code of this page";
  }
  button.addEventListener("click", () => {
    memory.shown = button.getAttribute("aria-pressed") !== "true";
    show(memory.shown);
  });
  bar.prepend(button);
  document.body.classList.add("rm-switched");
  show(memory.shown);
});
