"use strict";

/* The model with its tokenizer, asked for one answer at a time. */
(globalThis.Playground ??= {}).Engine = class Engine {
  constructor(data) {
    this.tokenizer = new Playground.Tokenizer(data.tokenizer);
    this.prompt = new Playground.Prompt(this.tokenizer, data.frame);
    const weights = new Map();
    const numbers = Engine.unpack(data.weights);
    let at = 0;
    for (const [name, length] of data.layout) weights.set(name, numbers.subarray(at, at += length));
    this.limit = data.limit;
    this.stop = new Set(data.stop);
    this.llama = new Playground.Llama(data.config, weights, data.longest + data.limit);
  }

  /* float32 numbers from base64. */
  static unpack(text) {
    const packed = atob(text), bytes = new Uint8Array(packed.length);
    for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
    return new Float32Array(bytes.buffer);
  }

  /* The greedy answer as a series of events: the prompt; how much of it is read; each token with
     the attention rows that decided it; the end. masked: list of layer * heads + head. */
  *answer({masked, ...question}) {
    const off = new Set(masked), prompt = this.prompt.build(question);
    yield {kind: "prompt", ...prompt, texts: prompt.ids.map(id => this.tokenizer.text(id))};
    for (const share of this.llama.read(prompt.ids.slice(0, -1), off)) {
      yield {kind: "reading", share};
    }
    let last = prompt.ids.at(-1);
    for (let t = 0; t < this.limit; t++) {
      const {logits, rows} = this.llama.step(last, off);
      last = logits.indexOf(logits.reduce((a, b) => Math.max(a, b)));
      if (this.stop.has(last)) {
        yield {kind: "end", stopped: true, logits};
        return;
      }
      yield {kind: "token", id: last, text: this.tokenizer.text(last), logits, rows};
    }
    yield {kind: "end", stopped: false};
  }
};
