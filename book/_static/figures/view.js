"use strict";

/* Views of figures: what a chapter's picture shows, to be used with mouse, finger or keys. The data
   stand as JSON behind the picture (rmutils.book.chapters.interactive); text is only ever set as text. */
(globalThis.Figures ??= {}).views ??= {};

/* An element. children: texts and elements. */
Figures.make = function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};

/* A named slider with what it says beside it; move is called with its number and returns that. */
Figures.slider = function slider(name, range, move) {
  const {make} = Figures;
  const input = make("input", {type: "range", "aria-label": name, ...range});
  const said = make("output");
  const show = () => {
    said.textContent = move(Number(input.value));
    input.setAttribute("aria-valuetext", said.textContent);
  };
  input.addEventListener("input", show);
  return {input, show, box: make("div", {class: "rm-slider"}, make("span", {}, name), input, said)};
};

/* The view takes the picture's place on a screen, or stands below it (view.below). */
Figures.open = function open(figure, data) {
  const view = Figures.views[data.view], picture = figure.querySelector("img");
  const box = Figures.make("div", {class: "rm-view mathjax_ignore", role: "group",
                                   "aria-label": picture.alt});
  picture.after(box);
  view(box, data, picture);
  if (!view.below) figure.classList.add("rm-replaced");
};

document.addEventListener("DOMContentLoaded", () => {
  let figure = null;
  for (const element of document.querySelectorAll("figure, script.rm-figure")) {
    if (element.matches("figure")) figure = element;
    else if (figure) Figures.open(figure, JSON.parse(element.textContent));
  }
});
