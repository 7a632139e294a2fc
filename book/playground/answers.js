"use strict";

/* One answer as a row of buttons, a token each. */
(globalThis.Playground ??= {}).Answers = class Answers {
  /* choose: called with the number of a token that is clicked or reached by the arrow keys. */
  constructor(box, choose) {
    this.box = box;
    this.choose = choose;
    Playground.moveByKeys(box);
    box.addEventListener("focusin", event => this.#chosen(event));
    box.addEventListener("click", event => this.#chosen(event));
  }

  #chosen(event) {
    const step = [...this.box.children].indexOf(event.target.closest("button"));
    if (step >= 0) this.choose(step);
  }

  clear() {
    this.box.replaceChildren();
  }

  add({text, copies}) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = copies.some(Boolean) ? "pg-token pg-copied" : "pg-token";
    button.textContent = Playground.words.visible(text);
    button.tabIndex = this.box.children.length ? -1 : 0;
    this.box.append(button);
  }

  /* Mark the chosen token; -1: none of these. */
  mark(step) {
    [...this.box.children].forEach((button, i) => {
      button.setAttribute("aria-current", String(i === step));
      if (step >= 0) button.tabIndex = i === step ? 0 : -1;
    });
  }
};
