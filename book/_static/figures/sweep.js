"use strict";

/* The masking sweep: a line on the picture, and all values at the number of heads it stands at. */
((globalThis.Figures ??= {}).views ??= {}).sweep = function sweep(box, data, picture) {
  const {make, slider} = Figures, {counts, across} = data, policies = Object.entries(data.lines);
  const line = make("div", {class: "rm-line"}), frame = make("div", {class: "rm-frame"});
  const told = make("span");
  line.append(told);
  frame.append(picture, line);
  line.style.top = `${100 * data.top}%`;
  line.style.bottom = `${100 * data.bottom}%`;

  const cells = data.measures.map(() => policies.map(() => make("td")));
  const table = make("table", {class: "rm-values"},
    make("thead", {}, make("tr", {}, ...["", ...policies.map(([, label]) => label)].map(
      label => label ? make("th", {scope: "col"}, label) : make("td")))),
    make("tbody", {}, ...data.measures.map(({name}, row) => make(
      "tr", {}, make("th", {scope: "row"}, name), ...cells[row]))));

  const middle = counts.length >> 1;  // at 0 nothing is masked, and all lines are alike
  const heads = slider("Heads masked", {min: 0, max: counts.length - 1, step: 1, value: middle}, at => {
    line.style.left = `${100 * across[at]}%`;
    told.textContent = `${counts[at]} heads`;
    data.measures.forEach((measure, row) => policies.forEach(([policy], column) => {
      cells[row][column].textContent = measure[policy][at] ?? "–";
    }));
    return `${counts[at]} of ${data.of} (${data.taus[at]})`;
  });
  frame.addEventListener("pointermove", event => {
    const {left, width} = frame.getBoundingClientRect(), x = (event.clientX - left) / width;
    const far = across.map(place => Math.abs(place - x));
    heads.input.value = far.indexOf(Math.min(...far));
    heads.show();
  });
  box.append(frame, heads.box, table, make("p", {class: "rm-legend"}, make("span", {},
    "The values where the line stands, with 95 % intervals in brackets; a dash: not measured.")));
  heads.show();
};
Figures.views.sweep.below = true;
