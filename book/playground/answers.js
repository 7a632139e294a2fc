"use strict";

/* One answer as a row of buttons, a token each. */
(globalThis.Playground ??= {}).Answers = class Answers {
  /* choose: called with the number of a token that is clicked or reached by the arrow keys; peek: of
     one under the pointer, and with -1 when that leaves. */
  constructor(box, choose, peek) {
    this.box = box;
    this.choose = choose;
    Playground.moveByKeys(box);
    box.addEventListener("focusin", event => this.#chosen(event));
    box.addEventListener("click", event => this.#chosen(event));
    box.addEventListener("pointerover", event => peek(this.#step(event)));
    box.addEventListener("pointerleave", () => peek(-1));
  }

  #step({target}) {
    return [...this.box.children].indexOf(target.closest("button"));
  }

  #chosen(event) {
    const step = this.#step(event);
    if (step >= 0) this.choose(step);
  }

  clear() {
    this.box.replaceChildren();
  }

  add({text, copied}) {
    const button = document.createElement("button"), {shown, spoken} = Playground.words;
    button.type = "button";
    button.className = copied ? "pg-token pg-copied" : "pg-token";
    button.textContent = shown(text);
    if (!text.trim()) button.setAttribute("aria-label", spoken(text));
    button.tabIndex = this.box.children.length ? -1 : 0;
    this.box.append(button);
  }

  /* Mark the chosen token (-1: none of these) and those of words that the other answer lacks. */
  mark(step, differing) {
    [...this.box.children].forEach((button, i) => {
      button.setAttribute("aria-current", String(i === step));
      button.classList.toggle("pg-differs", differing.has(i));
      if (step >= 0) button.tabIndex = i === step ? 0 : -1;
    });
  }
};
