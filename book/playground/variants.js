"use strict";

/* The models that answer: the whole one, and those that are changed as rmutils.heads.masking and
   rmutils.attention do it. Each says how a prompt is read and how the next token is found; Llama
   asks for `off` and `turns` in each layer. */
(globalThis.Playground ??= {}).WholeModel = class WholeModel {
  off = new Set();   // masked heads: layer * heads + head
  first = Infinity;  // the first layer in which a prompt is read in another way
  key = "";          // says what a cache holds besides its tokens

  constructor(llama) {
    this.llama = llama;
  }

  /* How a head's queries and keys are turned on (see Llama); null: not at all. */
  turns() {
    return null;
  }

  /* Read a prompt; yields how much is read. */
  *read(ids) {
    yield* this.llama.read(ids);
  }

  /* One token more: {logits, rows}, as Llama has them. */
  *step(id) {
    return this.llama.step(this.llama.whole, id, this);
  }
};

/* The output of some heads is zero before W_o (Equation 2 of the paper). */
Playground.MaskedModel = class MaskedModel extends Playground.WholeModel {
  constructor(llama, {heads}) {
    super(llama);
    this.off = new Set(heads);
    this.first = Math.min(...heads.map(head => Math.floor(head / llama.config.heads)));
    this.key = `masked ${[...heads].sort((a, b) => a - b)}`;
  }

  *read(ids) {
    yield* super.read(ids);
    yield* this.llama.readChanged(this);
  }

  *step(id) {
    return this.llama.step(this.llama.changed, id, this);
  }
};

/* Some heads are pointed at a sentence, as rmutils.redirect does it: from the prompt's last token on,
   they add a bias to their logits of its tokens, the places [start, end). */
Playground.Redirect = class Redirect extends Playground.MaskedModel {
  constructor(llama, {heads, strength, sentence: [start, end]}) {
    super(llama, {heads: []});
    const {heads: perLayer, size} = llama.config, bias = strength * Math.sqrt(size);
    const pointed = new Set(heads);
    this.adjust = (products, layer, head) => {
      if (!pointed.has(layer * perLayer + head)) return;
      for (let place = start; place < end; place++) products[place] += bias;
    };
  }
};

/* Memory by heads, as rmutils.memory_by_heads has it: while the answer is written, only some key
   heads have the whole text; the others have its first tokens and the most recent ones. They are
   numbered layer * key heads + key head. What is forgotten is hidden here, not freed. */
Playground.Memory = class Memory extends Playground.MaskedModel {
  static SINKS = 8;
  static RECENT = 64;

  constructor(llama, {whole}) {
    super(llama, {heads: []});
    const {heads, keyHeads} = llama.config, kept = new Set(whole);
    this.adjust = (products, layer, head) => {
      if (kept.has(layer * keyHeads + Math.floor(head * keyHeads / heads))) return;
      products.fill(-Infinity, Memory.SINKS, Math.max(products.length - Memory.RECENT, 0));
    };
  }

  /* The share of a cache that is left of so many tokens, given the share of whole key heads. */
  static left(share, tokens) {
    return share + (1 - share) * Math.min(1, (Memory.SINKS + Memory.RECENT) / tokens);
  }
};

/* Ms-PoE: from layer 2 on, each head divides positions by a ratio of its own, from the lowest for
   the first head of a layer to the highest for its last. */
Playground.MsPoe = class MsPoe extends Playground.MaskedModel {
  constructor(llama, {low, high}) {
    super(llama, {heads: []});
    this.first = 2;
    this.key = `ratios ${low} ${high}`;
    const {heads, size} = llama.config, {capacity, frequencies} = llama, {fround} = Math;
    this.tables = Array.from({length: heads}, (_, head) => {
      const share = fround(head / Math.max(heads - 1, 1));
      const ratio = fround(low + fround(fround(high - low) * share));
      const table = new Float32Array(capacity * size);
      for (let place = 0; place < capacity; place++) {
        const further = fround(fround(place / ratio) - place);
        frequencies.forEach((frequency, d) => {
          const angle = fround(further * frequency);
          table[place * size + 2 * d] = Math.cos(angle);
          table[place * size + 2 * d + 1] = Math.sin(angle);
        });
      }
      return table;
    });
  }

  turns(layer, head) {
    return layer < this.first ? null : this.tables[head];
  }
};

/* Select-Attention: while it writes, the layers of the upper half see only the tokens that have
   most of the attention in the layer below them, until they have a share p of it. */
Playground.Select = class Select extends Playground.WholeModel {
  constructor(llama, {p}) {
    super(llama);
    this.p = p;
    this.filter = llama.config.layers / 2 - 1;
  }

  *read(ids) {
    yield* super.read(ids);
    this.place = null;
  }

  /* The prompt's last token sees all. */
  *step(id) {
    const {llama} = this;
    if (this.place === null) {
      this.place = llama.whole.ids.length + 1;
      return llama.step(llama.whole, id, this);
    }
    return yield* llama.stepChosen(id, this.place++, this, this.filter, (rows, length) =>
      Playground.Select.top(rows, length, this.p));
  }

  /* The fewest places whose mean attention adds up to a share p, in their order, and the newest. */
  static top(rows, length, p) {
    const mean = new Float32Array(length), heads = rows.length / length;
    for (let i = 0; i < rows.length; i++) mean[i % length] += rows[i] / heads;
    const total = mean.reduce((sum, x) => sum + x, 0), chosen = new Set([length - 1]);
    const order = Array.from(mean.keys()).sort((a, b) => mean[b] - mean[a]);
    let before = 0;
    for (const place of order) {
      if (p < 1 && before >= p * total) break;
      chosen.add(place);
      before += mean[place];
    }
    return [...chosen].sort((a, b) => a - b);
  }
};

/* DeCoRe: the whole model's next token, contrasted with that of the model without some heads, which
   takes over what the whole model has read. What heads look at is the whole model's. */
Playground.DeCoRe = class DeCoRe extends Playground.MaskedModel {
  /* cap: the largest weight of the contrast; null: any. */
  constructor(llama, {heads, cap}) {
    super(llama, {heads});
    this.first = Infinity;
    this.key = null;
    this.cap = cap ?? Infinity;
  }

  *step(id) {
    const masked = Playground.DeCoRe.logProbabilities((yield* super.step(id)).logits);
    const {logits, rows} = this.llama.step(this.llama.whole, id);
    const base = Playground.DeCoRe.logProbabilities(logits);
    const entropy = base.reduce((sum, x) => sum - x * Math.exp(x), 0);
    const alpha = Math.min(entropy, this.cap);
    return {logits: Float32Array.from(base, (x, i) => (1 + alpha) * x - alpha * masked[i]), rows};
  }

  static logProbabilities(logits) {
    const highest = logits.reduce((a, b) => Math.max(a, b), -Infinity);
    const sum = logits.reduce((total, x) => total + Math.exp(x - highest), 0);
    return Float64Array.from(logits, x => x - highest - Math.log(sum));
  }
};
