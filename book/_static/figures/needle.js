"use strict";

/* One answer, token by token: where a head looks in the prompt. It stands below the picture. */
((globalThis.Figures ??= {}).views ??= {}).needle = function needle(box, data) {
  const {make, slider} = Figures, {prompt, written} = data, [start, end] = data.needle;
  let head = data.heads[0], step = Math.max(head.copied.indexOf(true), 0);

  const spans = [...prompt, ...written].map((text, i) => {
    const kind = i >= prompt.length ? "rm-said"
      : i >= data.inserted[0] && i < data.inserted[1] ? "rm-inserted" : "";
    return make(i >= start && i < end ? "u" : "span", {class: kind}, text);
  });
  const text = make("div", {class: "rm-prompt", tabindex: 0, role: "region",
                            "aria-label": "The prompt and the answer so far"}, ...spans);
  const detail = make("p", {class: "rm-told", "aria-live": "polite"});
  const visible = i => `“${spans[i].textContent.trim() || spans[i].textContent}”`;

  const show = () => {
    const place = head.looks[step], weights = new Map(head.weights[step]);
    const most = Math.max(...weights.values());
    spans.forEach((span, i) => {
      span.hidden = i > prompt.length + step;
      span.style.setProperty("--look", ((weights.get(i) ?? 0) / most).toFixed(2));
      span.classList.toggle("rm-hardest", i === place);
      span.classList.toggle("rm-now", i === prompt.length + step);
    });
    text.scrollTop = spans[place].offsetTop - text.clientHeight / 2;
    const where = place >= prompt.length ? "in the answer itself"
      : place >= start && place < end ? "in the needle" : "not in the needle";
    const copies = head.copied[step] ? ", and that is what is written: copied" : "";
    const percent = `${Math.round(100 * head.inside[step])} %`;
    detail.textContent = `The head looks hardest at token ${place}, ${visible(place)}, `
      + `${where}${copies}. ${percent} of its attention is on the needle.`;
  };

  const tokens = slider("Token", {min: 1, max: written.length, step: 1, value: step + 1}, number => {
    step = number - 1;
    show();
    return `${number} of ${written.length}: the model writes ${visible(prompt.length + step)}`;
  });
  const select = make("select", {}, ...data.heads.map(({name}, i) => make(
    "option", {value: i}, name)));
  select.addEventListener("change", () => {
    head = data.heads[select.value];
    show();
  });
  box.append(make("label", {class: "rm-slider"}, make("span", {}, "Head"), select), tokens.box,
             detail, text, make("p", {class: "rm-legend"},
               make("span", {}, make("u", {}, "underlined"), ": the needle"),
               make("span", {}, make("span", {class: "rm-ramp rm-look"}), " attention"),
               make("span", {}, make("span", {class: "rm-hardest"}, "outlined"), ": hardest"),
               make("span", {}, make("span", {class: "rm-said"}, "italic"), ": the answer")));
  tokens.show();
};
Figures.views.needle.below = true;
