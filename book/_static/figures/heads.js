"use strict";

/* Layers x heads: what each head scores, and which heads reach a tau of the reader's choice. The
   longer side lies across the page; on a phone it goes down. */
((globalThis.Figures ??= {}).views ??= {}).heads = function heads(box, data) {
  const {make, slider} = Figures, {layers, heads, steps} = data;
  const phone = matchMedia("(max-width: 600px)"), cells = [];
  let tau = data.tau, chosen = data.mean.indexOf(Math.max(...data.mean));

  const told = index => `Layer ${Math.floor(index / heads)}, head ${index % heads}: score `
    + `${data.shown[index]}, ${data.mean[index] >= tau ? "masked" : "not masked"} `
    + `at τ = ${tau.toFixed(2)}`;
  const tell = index => {
    const card = make("a", {href: `${data.cards}${Math.floor(index / heads)}-${index % heads}`},
                      "its card");
    detail.replaceChildren(told(index), ...(data.cards ? [": ", card] : []));
  };
  const choose = index => {
    cells[chosen].tabIndex = -1;
    cells[chosen = index].tabIndex = 0;
    cells.forEach((cell, i) => cell.setAttribute("aria-pressed", String(i === index)));
    tell(index);
  };

  const map = make("div", {class: "rm-heads"}), detail = make("p", {class: "rm-told"});
  for (let index = 0; index < layers * heads; index++) {
    const cell = make("button", {type: "button", tabindex: -1});
    cell.style.background = data.colours[index];
    cell.addEventListener("pointerenter", () => tell(index));
    cell.addEventListener("focus", () => choose(index));
    cell.addEventListener("click", () => cell.focus());
    cells.push(cell);
  }
  const sideways = () => (layers >= heads) !== phone.matches;  // layers are columns
  const place = (element, layer, head) => {
    [element.style.gridColumn, element.style.gridRow] =
      sideways() ? [layer + 2, head + 2] : [head + 2, layer + 2];
    return element;
  };
  const label = (text, layer, head) => place(make("span", {"aria-hidden": "true"}, text), layer,
                                             head);
  const lay = () => {
    const [rows, columns] = sideways() ? ["head ", ""] : ["", "layer "];
    map.style.setProperty("--columns", sideways() ? layers : heads);
    cells.forEach((cell, index) => place(cell, Math.floor(index / heads), index % heads));
    map.replaceChildren(label(sideways() ? "layer" : "head", -1, -1),
                        ...cells.slice(0, layers).map((_, i) => label(`${columns}${i}`, i, -1)),
                        ...cells.slice(0, heads).map((_, i) => label(`${rows}${i}`, -1, i)),
                        ...cells);
  };
  map.addEventListener("pointerleave", () => tell(chosen));
  map.addEventListener("keydown", event => {
    const [right, down] = {ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1],
                           ArrowUp: [0, -1]}[event.key] ?? [0, 0];
    const [l, h] = sideways() ? [right, down] : [down, right];
    const layer = Math.floor(chosen / heads) + l, head = chosen % heads + h;
    if (!l && !h) return;
    event.preventDefault();
    if (layer >= 0 && layer < layers && head >= 0 && head < heads) {
      cells[layer * heads + head].focus();
    }
  });

  const threshold = slider("τ", {min: 0, max: Math.ceil(data.highest * steps), step: 1,
                                 value: data.tau * steps}, step => {
    tau = step / steps;
    cells.forEach((cell, index) => {
      cell.classList.toggle("rm-reaches", data.mean[index] >= tau);
      cell.setAttribute("aria-label", told(index));
    });
    tell(chosen);
    return `${data.reach[step]} of ${layers * heads} heads score at least τ = ${tau.toFixed(2)}`;
  });
  const ramp = make("span", {class: "rm-ramp"});
  ramp.style.background = `linear-gradient(to right, ${data.ramp.join(", ")})`;
  box.append(threshold.box, map, detail, make(
    "p", {class: "rm-legend"}, make("span", {}, "score 0 ", ramp, ` ${data.highest.toFixed(2)}`),
    make("span", {}, make("span", {class: "rm-key"}), " at or above τ"),
    make("span", {}, "in brackets: 95 % interval")));
  lay();
  phone.addEventListener("change", lay);
  choose(chosen);
  threshold.show();
};
