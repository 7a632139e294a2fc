"use strict";

/* What is asked: an example or one's own needle, and where it is hidden. */
(globalThis.Playground ??= {}).Form = class Form {
  static FIELDS = ["needle", "question", "answer"];

  /* cases: the examples; ask: called with the question when it is to be asked. */
  constructor(cases, ask) {
    this.cases = cases;
    const at = Form.at, example = at("example");
    example.append(...cases.map(({question}, i) => new Option(question, i)),
                   new Option("your own", ""));
    example.addEventListener("change", () => this.#take(example.value));
    for (const field of Form.FIELDS) {
      at(field).addEventListener("input", () => { example.value = ""; });
    }
    for (const slider of ["depth", "length"]) {
      at(slider).addEventListener("input", () => this.#label());
    }
    at("form").addEventListener("submit", event => {
      event.preventDefault();
      ask(this.#question());
    });
    this.#take(0);
    this.#label();
  }

  /* An element of page.html. */
  static at(name) {
    return document.getElementById(`pg-${name}`);
  }

  /* Fill in an example; for one's own, the text of the last example stays. */
  #take(number) {
    const example = this.cases[number];
    this.haystack = example?.haystack ?? this.haystack;
    for (const field of Form.FIELDS) Form.at(field).value = example ? example[field] : "";
  }

  #label() {
    Form.at("depth-shown").textContent = `${Math.round(100 * Form.at("depth").value)} %`;
    Form.at("length-shown").textContent = `${Form.at("length").value} tokens`;
  }

  #question() {
    const fields = Form.FIELDS.map(field => [field, Form.at(field).value.trim()]);
    return {haystack: this.haystack, ...Object.fromEntries(fields),
            depth: Number(Form.at("depth").value), length: Number(Form.at("length").value)};
  }

  /* How far the model is, for eyes and ears. */
  static tell(text, share) {
    Form.at("status").textContent = text;
    Form.at("progress").value = share;
  }
};
