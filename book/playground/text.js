"use strict";

/* The prompt and the answer so far, coloured by where one head looks, and over it the path of its
   hardest looks through the whole answer. */
(globalThis.Playground ??= {}).PromptText = class PromptText {
  static SVG = "http://www.w3.org/2000/svg";

  /* choose: called with the place of a token of the prompt that is clicked. */
  constructor(box, choose) {
    this.box = box;
    box.addEventListener("click", ({target}) => {
      const place = this.spans.indexOf(target);
      if (0 <= place && place < this.length) choose(place);
    });
    this.spans = [];
    this.path = [];
    this.drawing = document.createElementNS(PromptText.SVG, "svg");
    this.drawing.setAttribute("class", "pg-path");
    this.drawing.setAttribute("aria-hidden", "true");
    new ResizeObserver(() => this.#draw()).observe(box);
  }

  clear() {
    this.spans = [];
    this.path = [];
    this.box.replaceChildren();
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
    this.box.replaceChildren(...this.spans, this.drawing);
    this.box.scrollTop = this.spans[first].offsetTop - this.box.clientHeight / 3;
  }

  /* Frame a sentence: its places [start, end). */
  frame([start, end]) {
    this.spans.forEach((span, i) => span.classList.toggle("pg-framed", start <= i && i < end));
  }

  /* looks: places and weights of a head at one step; path: its hardest places, by step; tokens: the
     answer up to the step. */
  paint(looks, path, tokens, step) {
    const said = this.spans.slice(this.length).map(span => span.textContent);
    if (tokens.length < said.length || said.some((text, i) => text !== tokens[i].text)) {
      for (const span of this.spans.splice(this.length)) span.remove();
    }
    for (const {text} of tokens.slice(this.spans.length - this.length)) {
      const span = document.createElement("span");
      span.className = "pg-said";
      span.textContent = text;
      this.spans.push(span);
      this.box.append(span);
    }
    const weights = new Map(looks), [[hardest]] = looks;
    this.spans.forEach((span, i) => {
      const look = (weights.get(i) ?? 0).toFixed(2);
      if (span.style.getPropertyValue("--look") !== look) span.style.setProperty("--look", look);
      span.classList.toggle("pg-hardest", i === hardest);
    });
    this.path = path;
    this.step = step;
    this.#draw();
  }

  /* A line from look to look, and at each place the numbers of the steps that look there. */
  #draw() {
    const make = (kind, attributes, text = "") => {
      const element = document.createElementNS(PromptText.SVG, kind);
      for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
      element.textContent = text;
      return element;
    };
    const steps = this.path.map((place, step) => ({span: this.spans[place], step}))
      .filter(({span}) => span).map(({span, step}) =>
        ({step, x: span.offsetLeft + span.offsetWidth / 2, y: span.offsetTop, span}));
    const points = steps.map(({x, y}) => `${x},${y + 2}`).join(" ");
    const bySpan = Map.groupBy ? Map.groupBy(steps, ({span}) => span)
      : new Map(steps.map(one => [one.span, steps.filter(({span}) => span === one.span)]));
    const labels = [...bySpan.values()].map(list => make("text", {
      x: list[0].x, y: list[0].y + 4,
      class: list.some(({step}) => step === this.step) ? "pg-now" : "",
    }, PromptText.ranges(list.map(({step}) => step + 1))));
    this.drawing.setAttribute("height", this.box.scrollHeight);
    this.drawing.replaceChildren(make("polyline", {points}), ...labels);
  }

  /* 1, 2, 3, 7 as 1–3, 7. */
  static ranges(numbers) {
    const found = [];
    for (const number of numbers) {
      if (found.at(-1)?.[1] === number - 1) found.at(-1)[1] = number;
      else found.push([number, number]);
    }
    return found.map(([first, last]) => first === last ? `${first}` : `${first}–${last}`).join(", ");
  }
};
