"use strict";

/* What is asked: a ready scene or one's own, and where the needle is hidden. */
(globalThis.Playground ??= {}).Form = class Form {
  static FIELDS = ["haystack", "needle", "question", "answer", "depth"];

  /* ask: called with the question when it is to be asked; change: when another one is written or
     chosen, with the number of the scene (none: one's own). */
  constructor(ask, change) {
    const at = Form.at;
    this.change = change;
    for (const field of Form.FIELDS) {
      at(field).addEventListener("input", () => {
        const {needle, answer} = this.question;
        if (field === "needle" && !needle.includes(answer)) at("answer").value = "";
        this.#mark(null);
        change(null);
      });
    }
    at("form").addEventListener("submit", event => {
      event.preventDefault();
      ask(this.question);
    });
  }

  /* An element of page.html. */
  static at(name) {
    return document.getElementById(`pg-${name}`);
  }

  /* Offer the scenes of a model. */
  offer(scenes) {
    this.scenes = scenes;
    Form.at("scenes").replaceChildren(...scenes.map(({title}, number) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "pg-button";
      button.textContent = title;
      button.addEventListener("click", () => {
        this.take(number);
        this.change(number);
      });
      return button;
    }));
  }

  /* Fill in a scene of the model, by its number. */
  take(number) {
    this.fill(this.scenes[number]);
    this.#mark(number);
  }

  fill(question) {
    for (const field of Form.FIELDS) Form.at(field).value = question[field] ?? "";
    this.#mark(null);
  }

  #mark(number) {
    this.scene = number;
    Form.at("depth-shown").textContent = Playground.words.percent(Form.at("depth").value);
    [...Form.at("scenes").children].forEach((button, i) => {
      button.setAttribute("aria-pressed", String(i === number));
    });
  }

  get question() {
    const fields = Form.FIELDS.map(field => [field, Form.at(field).value.trim()]);
    return {...Object.fromEntries(fields), depth: Number(Form.at("depth").value)};
  }

  /* How far the model is, for eyes and ears. */
  static tell(text, share) {
    const status = Form.at("status"), progress = Form.at("progress"), percent = Math.round(100 * share);
    if (status.textContent !== text) status.textContent = text;  // laid out, and read aloud, once
    if (progress.value !== percent) progress.value = percent;
  }
};
