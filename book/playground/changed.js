"use strict";

/* How the second model differs from the whole one: heads are masked (those with the highest stored
   scores, as many random others of the same layers, or those of one's own choice), those with the
   highest scores are pointed at a sentence or alone remember the whole text, or it has one of the
   other changes of variants.js. Heads are numbered layer * heads + head. */
(globalThis.Playground ??= {}).ChangedModel = class ChangedModel {
  static MASKS = ["top", "random", "own"];
  static KINDS = [...ChangedModel.MASKS, "redirect", "memory", "decore", "ms-poe", "select"];

  constructor({scores, heads, keyHeads, layers}) {
    this.perLayer = heads;
    this.group = heads / keyHeads;  // query heads that share a key head
    const best = Array.from({length: layers * keyHeads}, (_, i) => Math.max(
      ...scores.slice(i * this.group, (i + 1) * this.group).map(({mean}) => mean)));
    this.keyOrder = best.map((_, i) => i).sort((a, b) => best[b] - best[a]);
    this.order = scores.map((_, i) => i).sort((a, b) => scores[b].mean - scores[a].mean);
    this.kind = "top";
    this.count = 10;
    this.seed = 1;
    this.own = new Set();
    this.pointed = 5;  // heads that are pointed at a sentence, as in the chapter
    this.strength = 5;  // the bias on their logits
    this.sentence = null;  // its number; null: the needle's
    this.share = 0.4;  // of the key heads that remember the whole text
    this.cap = null;  // of DeCoRe's contrast; null: none
    this.low = 1.2;   // Ms-PoE's ratios
    this.high = 1.8;
    this.p = 0.95;    // Select's share
  }

  /* As the page opens: what the answer that came with it was made by. */
  get untouched() {
    return this.kind === "top" && this.count === 10;
  }

  /* Heads that are masked. */
  get heads() {
    const {kind} = this;
    return kind === "top" || kind === "decore" ? new Set(this.top) : kind === "own" ? this.own
      : kind === "random" ? this.#random() : new Set();
  }

  /* Key heads that remember the whole text. */
  get whole() {
    return this.keyOrder.slice(0, Playground.Prompt.round(this.share * this.keyOrder.length));
  }

  /* The share of the cache that is left of a text of so many tokens. */
  left(tokens) {
    return Playground.Memory.left(this.whole.length / this.keyOrder.length, tokens);
  }

  get top() {
    return this.order.slice(0, this.count);
  }

  /* Heads that the map frames. */
  get framed() {
    const {group, whole} = this, heads = i => Array.from({length: group}, (_, j) => i * group + j);
    if (this.kind === "memory") return whole.flatMap(heads);
    return this.order.slice(0, this.kind === "redirect" ? this.pointed : this.count);
  }

  /* What the thread is told, a class of variants.js with its settings; null: nothing is changed. */
  get change() {
    const {kind, low, high, p, cap, strength, sentence} = this, heads = [...this.heads];
    return kind === "ms-poe" ? {kind: "MsPoe", low, high} : kind === "select" ? {kind: "Select", p}
      : kind === "memory" ? {kind: "Memory", whole: this.whole}
      : kind === "redirect" ? {kind: "Redirect", heads: this.framed, strength, sentence}
      : !heads.length ? null : kind === "decore" ? {kind: "DeCoRe", heads, cap}
      : {kind: "MaskedModel", heads};
  }

  /* For each of the top heads another one of its layer, while there are some. */
  #random() {
    const top = this.top, drawn = new Set();
    let state = this.seed;
    const next = () => {  // mulberry32
      state = state + 0x6d2b79f5 | 0;
      let x = Math.imul(state ^ state >>> 15, 1 | state);
      x = x + Math.imul(x ^ x >>> 7, 61 | x) ^ x;
      return ((x ^ x >>> 14) >>> 0) / 2 ** 32;
    };
    for (const head of top) {
      const first = head - head % this.perLayer;
      const others = Array.from({length: this.perLayer}, (_, i) => first + i)
        .filter(other => !top.includes(other) && !drawn.has(other));
      if (others.length) drawn.add(others[Math.floor(next() * others.length)]);
    }
    return drawn;
  }

  /* Mask a head or not: from now on they are of one's own choice. */
  toggle(head) {
    this.own = new Set(this.heads);
    if (!this.own.delete(head)) this.own.add(head);
    this.kind = "own";
  }
};
