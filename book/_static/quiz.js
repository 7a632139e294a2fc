/* Quizzes at the ends of chapters: choose, check, read why. Without this script the questions stand
   there as a list, and their answers in a fold-out below it. */
"use strict";

(() => {
  const LETTER = /^\s*([a-z])\)\s*/;

  function make(tag, properties, ...children) {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  }

  /* One question: a list item with a paragraph and a list of options. */
  function ask(question, answer, number, name) {
    const options = question.querySelector(":scope > ul");
    const right = LETTER.exec(answer.textContent)[1];
    const why = answer.cloneNode(true);
    why.querySelector("strong").remove();
    const told = make("div", { className: "rm-reply" });
    told.setAttribute("role", "status");
    const choices = [...options.children].map((option) => {
      const value = LETTER.exec(option.textContent)[1];
      const input = make("input", { type: "radio", name, value });
      return make("label", {}, input, make("span", {}, ...(option.querySelector("p") ?? option).childNodes));
    });
    const field = make("fieldset", {},
      make("legend", {}, `${number}. `, ...question.querySelector(":scope > p").childNodes), ...choices);
    const check = make("button", { type: "button", textContent: "Check" });
    check.addEventListener("click", () => {
      const chosen = field.querySelector("input:checked")?.value;
      told.className = chosen === right ? "rm-reply rm-right" : "rm-reply";
      if (!chosen) told.replaceChildren("Choose one of the answers first.");
      else if (chosen !== right) told.replaceChildren(`Not ${chosen}). Try another one.`);
      else told.replaceChildren(make("strong", { textContent: "Right." }), " ",
        ...why.cloneNode(true).childNodes);
    });
    question.replaceChildren(field, check, told);
  }

  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll(".rm-quiz").forEach((quiz, number) => {
      const answers = quiz.querySelectorAll("details ol > li");
      if (!answers.length) return;  // a book without solutions
      quiz.classList.add("rm-asking");
      quiz.querySelectorAll(":scope > ol > li").forEach((question, i) => {
        ask(question, answers[i].querySelector("p") ?? answers[i], i + 1, `quiz-${number}-${i}`);
      });
    });
  });
})();
