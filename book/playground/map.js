"use strict";

/* Layers x heads as buttons: colour is how much a head looks at the needle, a click masks it. */
(globalThis.Playground ??= {}).HeadMap = class HeadMap {
  /* look: called with the number of a head that is pointed at or has the focus; toggle: of one
     that is pressed. */
  constructor(box, {config: {layers, heads}, scores, tau}, look, toggle) {
    this.heads = heads;
    this.scores = scores;
    this.cells = [];
    for (let head = 0; head < heads; head++) box.append(HeadMap.#label(`${head}`, -1, head));
    for (let layer = 0; layer < layers; layer++) {
      box.append(HeadMap.#label(`layer ${layer}`, layer, -1));
      for (let head = 0; head < heads; head++) {
        const cell = HeadMap.#place(document.createElement("button"), layer, head);
        const index = this.cells.push(cell) - 1;
        cell.type = "button";
        cell.className = scores[index].mean >= tau ? "pg-cell pg-retrieval" : "pg-cell";
        cell.tabIndex = index ? -1 : 0;
        cell.append(document.createElement("span"));
        for (const event of ["focus", "pointerenter"]) {
          cell.addEventListener(event, () => look(index));
        }
        cell.addEventListener("click", () => toggle(index));
        box.append(cell);
      }
    }
    Playground.moveByKeys(box);
  }

  static #label(text, layer, head) {
    const label = HeadMap.#place(document.createElement("span"), layer, head);
    label.className = "pg-label";
    label.textContent = text;
    label.setAttribute("aria-hidden", "true");
    return label;
  }

  /* On a phone the map stands on its side; the style sheet knows. */
  static #place(element, layer, head) {
    element.style.setProperty("--layer", layer);
    element.style.setProperty("--head", head);
    return element;
  }

  /* shares: attention on the needle, by head (none before the first answer); copies: whether it
     copies; masked: set of heads; chosen: the one whose attention is shown below. */
  show({shares, copies, masked, chosen}) {
    this.cells.forEach((cell, index) => {
      const share = shares ? shares[index] : 0, off = masked.has(index);
      cell.style.setProperty("--share", share.toFixed(3));
      cell.classList.toggle("pg-chosen", index === chosen);
      cell.firstChild.textContent = (off ? "×" : "") + (copies?.[index] ? "●" : "");
      cell.setAttribute("aria-pressed", String(off));
      const {head, percent, stored} = Playground.words;
      const seen = shares ? `, ${percent(share)} of its attention on the needle` : "";
      cell.setAttribute("aria-label", `Mask ${head(index, this.heads)}${seen}`
        + `${copies?.[index] ? ", copies from it" : ""}; ${stored(this.scores[index])}`);
    });
  }
};
