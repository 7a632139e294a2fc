"use strict";

/* A card for each head: what it looks at on ordinary text, what it adds to the next token, and where
   it looks hardest. The page of the playground shows one of them, too. */
(globalThis.Figures ??= {}).headCard = function headCard({kinds, mean}, card) {
  const {make} = Figures, [layer, head] = card.head;
  const percent = share => share >= 10 || share === 0 ? share.toFixed(0) : share.toFixed(1);
  const bar = make("div", {class: "rm-shares", "aria-hidden": "true"}), told = [];
  kinds.forEach(([name, colour], i) => {
    const share = card.shares[i];
    if (share < 0.05) return;
    const part = make("span");
    part.style.background = colour;
    part.style.flexGrow = share;
    const key = make("i");
    key.style.background = colour;
    bar.append(part);
    told.push(make("li", {}, key, `${name} ${percent(share)}\u00a0%`));
  });
  const examples = card.examples.map(([text, weight, kind, before, seen, here, next]) => make(
    "li", {}, make("b", {}, `${text}: `), `… ${before}`, make("mark", {}, seen || "\u00a0"),
    ` gets ${Math.round(100 * weight)}\u00a0% (${kind}) when the text stands at … ${here}`,
    make("u", {}, next || "\u00a0")));
  const box = make("div", {class: "rm-card", tabindex: -1},
    make("p", {class: "rm-card-name"}, make("b", {}, `Layer ${layer}, head ${head}`),
         card.score === null ? "" : ` copy score ${card.score.toFixed(2)}`),
    bar, make("ul", {class: "rm-kinds"}, ...told),
    make("p", {}, `It looks back ${card.distance.toFixed(0)} tokens on average; entropy `
      + `${card.entropy.toFixed(1)} nats.${mean === null ? "" : " To the token that comes next it "
        + `adds ${(card.adds / mean).toFixed(1)} times as much as the mean of these heads.`}`));
  if (examples.length) {
    box.append(make("details", {}, make("summary", {}, "Where it looks hardest"),
                    make("ul", {}, ...examples),
                    make("p", {}, "Marked: the token looked at. Underlined: what comes next. "
                      + "Chosen by rank in each kind of text.")));
  }
  return box;
};

/* All cards of a model, sorted as the reader likes; an address that ends in #head-LAYER-HEAD opens
   that card. */
(Figures.views ??= {}).cards = function cards(box, {models}) {
  const {make, headCard} = Figures, FEW = 12;
  const by = (value, sign = -1) => (a, b) => sign * (value(a) - value(b));
  const copy = models[0].kinds.findIndex(([name]) => name === "copy");
  const orders = {
    "copy score": by(card => card.score), "copies": by(card => card.shares[copy]),
    ...(models[0].mean === null ? {} : {"contribution to the next token": by(card => card.adds)}),
    "distance": by(card => card.distance), "rest on the first token": by(card => card.shares[0]),
    "layer": by(card => 1000 * card.head[0] + card.head[1], 1),
  };
  const select = (name, options) => {
    const menu = make("select", {}, ...options.map(option => new Option(option)));
    menu.addEventListener("change", () => show(FEW));
    return [menu, make("label", {}, `${name} `, menu)];
  };
  const [model, modelBox] = select("Model", models.map(({name}) => name));
  const [order, orderBox] = select("Sort by", Object.keys(orders));
  const grid = make("div", {class: "rm-cards"});
  const more = make("button", {type: "button", class: "rm-more"});
  const show = (count, asked = null) => {
    const own = models.find(({name}) => name === model.value);
    const sorted = own.cards.filter(card => card !== asked).sort(orders[order.value]);
    grid.replaceChildren(...sorted.slice(0, count).map(card => headCard(own, card)));
    more.hidden = count >= sorted.length;
    more.textContent = `All ${sorted.length} heads`;
  };
  more.addEventListener("click", () => show(Infinity));
  box.append(make("p", {class: "rm-choices"}, modelBox, orderBox), grid, more);
  const arrive = () => {
    const [, name, layer, head] = location.hash.match(/^#head-(.*)-(\d+)-(\d+)$/) ?? [];
    const own = models.find(one => one.name === name);
    const card = own?.cards.find(one => one.head[0] === Number(layer)
                                        && one.head[1] === Number(head));
    if (!card) return;
    model.value = name;
    show(FEW, card);
    const found = headCard(own, card);
    found.classList.add("rm-asked");
    grid.prepend(found);
    found.querySelector("details")?.setAttribute("open", "");
    found.focus();
    found.scrollIntoView({block: "center"});
  };
  show(FEW);
  arrive();
  window.addEventListener("hashchange", arrive);
};
