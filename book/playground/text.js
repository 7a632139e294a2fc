"use strict";

/* The prompt and the answer so far, coloured by where one head looks. */
(globalThis.Playground ??= {}).PromptText = class PromptText {
  constructor(box) {
    this.box = box;
    this.spans = [];
  }

  /* A new prompt: its tokens, those of the needle's answer underlined and in sight. */
  open({texts, needle: [start, end], inserted: [first, last]}) {
    this.length = texts.length;
    this.spans = texts.map((text, i) => {
      const span = document.createElement(start <= i && i < end ? "u" : "span");
      if (first <= i && i < last) span.className = "pg-inserted";
      span.textContent = text;
      return span;
    });
    this.box.replaceChildren(...this.spans);
    this.box.scrollTop = this.spans[first].offsetTop - this.box.clientHeight / 3;
  }

  /* row: a head's attention; tokens: the answer up to there. */
  paint(row, tokens) {
    for (const span of this.spans.splice(this.length)) span.remove();
    for (const {text} of tokens) {
      const span = document.createElement("span");
      span.className = "pg-said";
      span.textContent = text;
      this.spans.push(span);
      this.box.append(span);
    }
    const hardest = Playground.retrieval.hardest(row);
    this.spans.forEach((span, i) => {
      span.style.setProperty("--look", (row[i] / row[hardest]).toFixed(2));
      span.classList.toggle("pg-hardest", i === hardest);
    });
  }
};
