"use strict";

/* A Llama: the forward pass of transformers' LlamaForCausalLM, with heads that can be masked.

   What has been read stays in the cache, so a prompt that begins as the last one did, or that is
   read again with other heads masked in the last layer, is not read twice. A masked head's output
   is zero before W_o (Equation 2 of the paper). */
(globalThis.Playground ??= {}).Llama = class Llama {
  static BLOCK = 32;  // tokens of a prompt that are read together

  /* weights: name in the checkpoint -> Float32Array; capacity: longest prompt with its answer. */
  constructor(config, weights, capacity) {
    const {layers, heads, keyHeads, size, width, hidden} = config, rows = Llama.BLOCK;
    this.config = config;
    this.weights = weights;
    this.capacity = Math.ceil(capacity / 4) * 4;
    const room = keyHeads * size * this.capacity;
    this.keys = Array.from({length: layers}, () => new Float32Array(room));    // head, place, size
    this.values = Array.from({length: layers}, () => new Float32Array(room));  // head, size, place
    this.held = [];       // tokens in the cache
    this.heldMask = "";   // what was masked below the last layer when they were read
    const matrix = columns => ({data: new Float32Array(rows * columns), at: 0, stride: columns});
    this.x = matrix(width);
    this.normed = matrix(width);
    this.q = matrix(heads * size);
    this.k = matrix(keyHeads * size);
    this.v = matrix(keyHeads * size);
    this.looks = matrix(this.capacity);
    this.mixed = matrix(heads * size);
    this.gate = matrix(hidden);
    this.up = matrix(hidden);
    this.added = matrix(width);
    this.logits = {data: new Float32Array(4 * config.vocabulary), at: 0, stride: config.vocabulary};
    this.frequencies = Float32Array.from(
      {length: size / 2}, (_, i) => 1 / Math.fround(config.theta ** (2 * i / size)));
  }

  /* Read a prompt into the cache; yields the share that is read.
     masked: set of layer * heads + head. */
  *read(ids, masked) {
    const below = [...masked].filter(head => head < (this.config.layers - 1) * this.config.heads);
    const mask = below.sort((a, b) => a - b).join();
    let done = 0;
    if (mask === this.heldMask) while (done < ids.length && ids[done] === this.held[done]) done++;
    this.heldMask = mask;
    this.held.length = done;
    while (done < ids.length) {
      yield done / ids.length;
      const block = ids.slice(done, done + Llama.BLOCK);
      this.#forward(block, done, masked, null);
      this.held.push(...block);
      done += block.length;
    }
  }

  /* Read one token more: {logits, rows}, rows being the attention of each head, one after another,
     over all tokens so far. */
  step(id, masked) {
    const {layers, heads, width, vocabulary} = this.config, place = this.held.length;
    const rows = new Float32Array(layers * heads * (place + 1));
    this.#forward([id], place, masked, rows);
    this.held.push(id);
    this.#norm(this.x, "model.norm.weight", 4);
    this.#times(this.logits, this.normed, "model.embed_tokens.weight", 4, vocabulary, width);
    return {logits: this.logits.data.slice(0, vocabulary), rows};
  }

  /* All layers for some tokens from position `start` on. Without `rows`, only what later tokens
     need is computed; with it, the attention of the one token is written there. */
  #forward(ids, start, masked, rows) {
    const {layers, heads, keyHeads, size, width, hidden} = this.config;
    const count = Math.ceil(ids.length / 4) * 4;
    const embedding = this.weights.get("model.embed_tokens.weight");
    this.x.data.fill(0);
    ids.forEach((id, i) => {
      this.x.data.set(embedding.subarray(id * width, (id + 1) * width), i * width);
    });
    for (let layer = 0; layer < layers; layer++) {
      const name = `model.layers.${layer}.`;
      this.#norm(this.x, name + "input_layernorm.weight", count);
      for (const part of ["k", "v"]) {
        this.#times(this[part], this.normed, `${name}self_attn.${part}_proj.weight`, count,
                    keyHeads * size, width);
      }
      this.#rotate(this.k, keyHeads, start, ids.length);
      this.#keep(layer, start, ids.length);
      if (!rows && layer === layers - 1) return;
      this.#times(this.q, this.normed, name + "self_attn.q_proj.weight", count, heads * size,
                  width);
      this.#rotate(this.q, heads, start, ids.length);
      for (let head = 0; head < heads; head++) {
        const index = layer * heads + head, off = masked.has(index);
        if (rows || !off) this.#attend(layer, head, start, ids.length);
        if (rows) rows.set(this.looks.data.subarray(0, start + 1), index * (start + 1));
        if (off) this.#switchOff(head);
      }
      this.#times(this.added, this.mixed, name + "self_attn.o_proj.weight", count, width,
                  heads * size);
      this.#add(count * width);
      this.#norm(this.x, name + "post_attention_layernorm.weight", count);
      this.#times(this.gate, this.normed, name + "mlp.gate_proj.weight", count, hidden, width);
      this.#times(this.up, this.normed, name + "mlp.up_proj.weight", count, hidden, width);
      const gate = this.gate.data, up = this.up.data;
      for (let i = 0; i < count * hidden; i++) gate[i] *= up[i] / (1 + Math.exp(-gate[i]));
      this.#times(this.added, this.gate, name + "mlp.down_proj.weight", count, width, hidden);
      this.#add(count * width);
    }
  }

  /* Attention of one head: softmax of q k / sqrt(size) over the tokens so far, times v. */
  #attend(layer, head, start, count) {
    const {heads, keyHeads, size} = this.config, {capacity, looks} = this;
    const at = Math.floor(head / (heads / keyHeads)) * size * capacity;
    const rows = Math.ceil(count / 4) * 4, columns = Math.ceil((start + count) / 4) * 4;
    Playground.product(looks, {...this.q, at: head * size},
                       {data: this.keys[layer], at, stride: size}, rows, columns, size);
    for (let i = 0; i < rows; i++) {
      const row = looks.data.subarray(i * capacity, i * capacity + columns);
      const seen = Math.min(start + i + 1, columns), scale = 1 / Math.sqrt(size);
      let highest = -Infinity, sum = 0;
      for (let j = 0; j < seen; j++) highest = Math.max(highest, row[j]);
      for (let j = 0; j < seen; j++) sum += row[j] = Math.exp((row[j] - highest) * scale);
      for (let j = 0; j < seen; j++) row[j] /= sum;
      row.fill(0, seen);
    }
    Playground.product({...this.mixed, at: head * size}, looks,
                       {data: this.values[layer], at, stride: capacity}, rows, size, columns);
  }

  #switchOff(head) {
    const {size} = this.config, {data, stride} = this.mixed;
    for (let at = head * size; at < data.length; at += stride) data.fill(0, at, at + size);
  }

  /* Put keys and values into the cache. */
  #keep(layer, start, count) {
    const {keyHeads, size} = this.config, {capacity} = this;
    for (let i = 0; i < count; i++) {
      for (let head = 0; head < keyHeads; head++) {
        for (let d = 0; d < size; d++) {
          const from = i * this.k.stride + head * size + d;
          this.keys[layer][(head * capacity + start + i) * size + d] = this.k.data[from];
          this.values[layer][(head * size + d) * capacity + start + i] = this.v.data[from];
        }
      }
    }
  }

  /* Rotary positions. */
  #rotate({data, stride}, heads, start, count) {
    const half = this.config.size / 2;
    for (let i = 0; i < count; i++) {
      for (let d = 0; d < half; d++) {
        const angle = Math.fround((start + i) * this.frequencies[d]);
        const cos = Math.cos(angle), sin = Math.sin(angle);
        for (let head = 0; head < heads; head++) {
          const at = i * stride + 2 * half * head + d, a = data[at], b = data[at + half];
          data[at] = a * cos - b * sin;
          data[at + half] = b * cos + a * sin;
        }
      }
    }
  }

  /* RMSNorm into `normed`. */
  #norm({data, stride}, name, count) {
    const weight = this.weights.get(name), {eps} = this.config;
    for (let at = 0; at < count * stride; at += stride) {
      let sum = 0;
      for (let d = 0; d < stride; d++) sum += data[at + d] ** 2;
      const factor = 1 / Math.sqrt(sum / stride + eps);
      for (let d = 0; d < stride; d++) this.normed.data[at + d] = data[at + d] * factor * weight[d];
    }
  }

  #times(out, input, name, rows, columns, depth) {
    const matrix = {data: this.weights.get(name), at: 0, stride: depth};
    Playground.product(out, input, matrix, rows, columns, depth);
  }

  #add(count) {
    for (let i = 0; i < count; i++) this.x.data[i] += this.added.data[i];
  }
};
