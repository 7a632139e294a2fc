"use strict";

/* Which heads are masked: those with the highest stored scores, as many random others of the same
   layers, or those of one's own choice. Heads are numbered layer * heads + head. */
(globalThis.Playground ??= {}).Masking = class Masking {
  constructor(scores, perLayer) {
    this.perLayer = perLayer;
    this.order = scores.map((_, i) => i).sort((a, b) => scores[b].mean - scores[a].mean);
    this.kind = "top";
    this.count = 10;
    this.seed = 1;
    this.own = new Set();
  }

  get heads() {
    return {top: () => new Set(this.top), random: () => this.#random(), own: () => this.own}[
      this.kind]();
  }

  get top() {
    return this.order.slice(0, this.count);
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
