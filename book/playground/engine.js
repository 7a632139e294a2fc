"use strict";

/* A model with its tokenizer, in a memory of its own, asked for one answer at a time. */
(globalThis.Playground ??= {}).Engine = class Engine {
  static TOPS = 3;  // places of each attention row that are told
  static NEXT = 5;  // likeliest tokens that are told

  /* model: what the page knows about it (models.js); kernel: kernel.wat, assembled. */
  constructor(model, kernel) {
    this.model = model;
    this.memory = new WebAssembly.Memory({initial: Math.ceil(model.bytes / 65536), maximum: 65536});
    this.kernel = Playground.plainKernel(this.memory);
    if (Engine.hasSimd(kernel)) {
      const module = new WebAssembly.Module(Engine.bytes(kernel));
      this.kernel = new WebAssembly.Instance(module, {page: {memory: this.memory}}).exports;
    }
  }

  /* Whether this browser's WebAssembly can run kernel.wat. */
  static hasSimd(kernel) {
    return WebAssembly.validate(Engine.bytes(kernel));
  }

  static bytes(base64) {
    return Uint8Array.fromBase64?.(base64) ?? Uint8Array.from(atob(base64), c => c.charCodeAt(0));
  }

  /* CRC-32, to see whether a file is as it was written. */
  static checksum(bytes) {
    const table = Int32Array.from({length: 256}, (_, i) => {
      for (let bit = 0; bit < 8; bit++) i = i & 1 ? i >>> 1 ^ 0xedb88320 : i >>> 1;
      return i;
    });
    let crc = -1;
    for (let i = 0; i < bytes.length; i++) crc = crc >>> 8 ^ table[(crc ^ bytes[i]) & 255];
    return ~crc >>> 0;
  }

  /* Put a part of the model's file into the memory. */
  take({at, bytes, file, checksum}) {
    if (Engine.checksum(bytes) !== checksum) {
      throw new Error(`The file ${file} is damaged. Copy it again, or build the book again.`);
    }
    new Uint8Array(this.memory.buffer).set(bytes, at);
    bytes.buffer.transfer?.(0);  // frees them now, not at some collection of garbage
  }

  /* All parts are there. */
  open() {
    const gguf = new Playground.Gguf(this.memory.buffer), {longest, limit, frame} = this.model;
    this.tokenizer = new Playground.Tokenizer({...gguf.tokenizer, digits: this.model.digits});
    this.prompt = new Playground.Prompt(this.tokenizer, frame, longest);
    this.stop = new Set(this.model.stop);
    this.llama = new Playground.Llama(gguf, this.memory, this.kernel, longest + limit);
  }

  /* The greedy answer as a series of events: the prompt; how much of it is read; each token with
     what each head did; the end. change: {kind, ...} names a class of variants.js and has its
     settings; logits: whether to tell them. */
  *answer({change, logits: told, ...question}) {
    const prompt = this.prompt.build(question);
    const texts = prompt.ids.map(id => this.tokenizer.text(id));
    const sentences = Playground.Prompt.sentences(texts, this.model.frame);
    yield {kind: "prompt", ...prompt, texts};
    const model = new Playground[change.kind](
      this.llama, {...change, sentence: sentences[change.sentence] ?? prompt.inserted});
    yield* model.read(prompt.ids.slice(0, -1));
    let last = prompt.ids.at(-1);
    for (let t = 0; t < this.model.limit; t++) {
      const {logits, rows} = yield* model.step(last);
      const known = told ? {logits: logits.slice()} : {};
      const next = this.#next(logits);
      [[last]] = next;
      if (this.stop.has(last)) {
        yield {kind: "end", stopped: true, ...known};
        return;
      }
      yield {kind: "token", id: last, text: this.tokenizer.text(last), next, ...known,
             ...this.#seen(rows, prompt.needle)};
    }
    yield {kind: "end", stopped: false};
  }

  /* The likeliest tokens, the likeliest first: [id, text, probability]. */
  #next(logits) {
    const best = [];
    for (let id = 0; id < logits.length; id++) {
      const at = best.findIndex(other => logits[id] > logits[other]);
      if (at < 0 && best.length === Engine.NEXT) continue;
      best.splice(at < 0 ? best.length : at, 0, id);
      best.length = Math.min(best.length, Engine.NEXT);
    }
    const odds = logit => Math.exp(logit - logits[best[0]]);
    const all = logits.reduce((sum, logit) => sum + odds(logit), 0);
    return best.map(id => [id, this.tokenizer.text(id), odds(logits[id]) / all]);
  }

  /* Of each head's attention row: the places that it looks at hardest, the hardest first, with
     their weights, and how much lies on the needle's answer. */
  #seen(rows, [start, end]) {
    const {layers, heads} = this.llama.config, count = layers * heads, length = rows.length / count;
    const places = new Uint16Array(count * Engine.TOPS);
    const weights = new Float32Array(count * Engine.TOPS), shares = new Float32Array(count);
    for (let head = 0; head < count; head++) {
      const row = rows.subarray(head * length, (head + 1) * length), first = head * Engine.TOPS;
      for (let place = 0; place < length; place++) {
        let at = first + Engine.TOPS;
        while (at > first && row[place] > weights[at - 1]) at--;
        if (at === first + Engine.TOPS) continue;
        places.copyWithin(at + 1, at, first + Engine.TOPS - 1);
        weights.copyWithin(at + 1, at, first + Engine.TOPS - 1);
        [places[at], weights[at]] = [place, row[place]];
      }
      for (let place = start; place < end; place++) shares[head] += row[place];
    }
    return {places, weights, shares};
  }
};
