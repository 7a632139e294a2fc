"use strict";

/* The controls of the second model: what is changed, and the numbers of that change. */
(globalThis.Playground ??= {}).Knobs = class Knobs {
  static UNLIMITED = 5;  // end of the slider for DeCoRe's cap

  /* change: called with what is to be set in ChangedModel. */
  constructor(change) {
    const {at} = Playground.Form, number = name => Number(at(name).value);
    const set = {
      choice: () => ({kind: at("choice").value}),
      count: () => ({count: number("count")}),
      pointed: () => ({pointed: number("pointed")}),
      strength: () => ({strength: number("strength")}),
      sentence: () => ({sentence: number("sentence")}),
      share: () => ({share: number("share")}),
      cap: () => ({cap: number("cap") < Knobs.UNLIMITED ? number("cap") : null}),
      low: () => ({low: number("low"), high: Math.max(number("low"), number("high"))}),
      high: () => ({low: Math.min(number("low"), number("high")), high: number("high")}),
      p: () => ({p: number("p")}),
    };
    for (const [name, settings] of Object.entries(set)) {
      at(name).addEventListener("input", () => change(settings()));
    }
  }

  show(changed) {
    const {at} = Playground.Form, {percent} = Playground.words;
    for (const box of document.querySelectorAll("#pg [data-for]")) {
      box.hidden = !box.dataset.for.split(" ").includes(changed.kind);
    }
    at("choice").value = changed.kind;
    const shown = {count: changed.count, pointed: changed.pointed, strength: changed.strength,
                   share: percent(changed.share), cap: changed.cap ?? "no limit",
                   low: changed.low.toFixed(1), high: changed.high.toFixed(1), p: percent(changed.p)};
    for (const [name, text] of Object.entries(shown)) {
      at(name).value = name === "cap" ? changed.cap ?? Knobs.UNLIMITED : changed[name];
      at(`${name}-shown`).textContent = text;
    }
    at("framed").textContent = Playground.words.framed(changed);
    at("changed-name").textContent = Playground.words.changed(changed);
  }
};
