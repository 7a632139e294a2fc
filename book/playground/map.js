"use strict";

/* Layers x heads as buttons: colour is how much a head looks at the needle. */
(globalThis.Playground ??= {}).HeadMap = class HeadMap {
  /* choose: called with the number of a head that is pressed or reached by the arrow keys; toggle:
     of one that is to be masked or not. */
  constructor(box, choose, toggle) {
    this.box = box;
    this.choose = choose;
    Playground.moveByKeys(box);
    const head = event => this.cells.indexOf(event.target.closest("button"));
    for (const kind of ["focusin", "click"]) {
      box.addEventListener(kind, event => head(event) >= 0 && choose(head(event)));
    }
    box.addEventListener("keydown", event => {
      if (event.key.toLowerCase() === "m" && head(event) >= 0) toggle(head(event));
    });
  }

  /* The heads of a model. */
  open({layers, heads, scores}) {
    this.heads = heads;
    this.scores = scores;
    this.cells = [];
    this.box.replaceChildren();
    this.box.style.setProperty("--layers", layers);
    this.box.style.setProperty("--heads", heads);
    for (let head = 0; head < heads; head++) this.#label(`${head}`, -1, head);
    for (let layer = 0; layer < layers; layer++) {
      this.#label(`${layer}`, layer, -1);
      for (let head = 0; head < heads; head++) {
        const cell = HeadMap.#place(document.createElement("button"), layer, head);
        cell.type = "button";
        cell.className = "pg-cell";
        cell.tabIndex = this.cells.push(cell) > 1 ? -1 : 0;
        cell.append(document.createElement("span"));
        this.box.append(cell);
      }
    }
  }

  #label(text, layer, head) {
    const label = HeadMap.#place(document.createElement("span"), layer, head);
    label.className = "pg-label";
    label.textContent = text;
    label.setAttribute("aria-hidden", "true");
    this.box.append(label);
  }

  /* On a phone the map stands on its side; the style sheet knows. */
  static #place(element, layer, head) {
    element.style.setProperty("--layer", layer);
    element.style.setProperty("--head", head);
    return element;
  }

  /* shares: attention on the needle, by head (none before the first answer); copies: whether it
     copies; masked: set of heads; top: those that get a frame; chosen: the one whose path is
     shown. */
  show({shares, copies, masked, top, chosen}) {
    const {head, percent, stored} = Playground.words, framed = new Set(top);
    this.cells.forEach((cell, index) => {
      const share = shares ? shares[index] : 0, off = masked.has(index);
      const seen = shares ? `, ${percent(share)} of its attention on the needle` : "";
      const label = head(index, this.heads) + (off ? ", masked" : "") + seen
        + `${copies?.[index] ? ", copies from it" : ""}; ${stored(this.scores[index])}`;
      cell.classList.toggle("pg-chosen", index === chosen);
      cell.classList.toggle("pg-retrieval", framed.has(index));
      cell.setAttribute("aria-current", String(index === chosen));
      if (cell.getAttribute("aria-label") === label) return;  // else all is laid out anew
      cell.setAttribute("aria-label", label);
      cell.style.setProperty("--share", share.toFixed(2));
      cell.firstChild.textContent = (off ? "×" : "") + (copies?.[index] ? "●" : "");
    });
  }
};
