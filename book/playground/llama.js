"use strict";

/* A Llama: the forward pass of transformers' LlamaForCausalLM, with heads that can be masked.

   The weights stay packed as they are in the GGUF file; a few rows at a time are made float32 for
   a product (kernel.wat). What has been read stays in the cache, so a prompt that begins as the
   last one did, or that is read again with other heads masked in the last layer, is not read
   twice. A masked head's output is zero before W_o (Equation 2 of the paper).

   A place in the memory is a number of float32 numbers; a matrix is {at, stride}. */
(globalThis.Playground ??= {}).Llama = class Llama {
  static BLOCK = 32;   // tokens of a prompt that are read together
  static ROWS = 8;     // rows of a weight matrix that are unpacked together
  static BYTES = {F32: 128, Q4_1: 20, Q8_0: 34};  // of 32 numbers

  /* memory: of WebAssembly, with the file of `gguf` at its start; kernel: its exports; capacity:
     longest prompt with its answer. */
  constructor(gguf, memory, kernel, capacity) {
    this.config = gguf.config;
    const {layers, heads, keyHeads, size, width, hidden, vocabulary} = this.config;
    this.tensors = new Map(Array.from(gguf.tensors, ([name, tensor]) => [
      name, {...tensor, bytes: tensor.depth / 32 * Llama.BYTES[tensor.type]}]));
    this.kernel = kernel;
    this.capacity = Math.ceil(capacity / 4) * 4;
    let end = Math.ceil(memory.buffer.byteLength / 16) * 4;  // aligned to 16 bytes
    const room = numbers => (end += Math.ceil(numbers / 4) * 4) - Math.ceil(numbers / 4) * 4;
    const matrix = (columns, rows = Llama.BLOCK) => ({at: room(rows * columns), stride: columns});
    const cache = keyHeads * size * this.capacity;
    this.keys = Array.from({length: layers}, () => room(cache));    // head, place, size
    this.values = Array.from({length: layers}, () => room(cache));  // head, size, place
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
    this.logits = matrix(vocabulary, 1);
    this.unpacked = matrix(Math.max(width, hidden), Llama.ROWS);
    memory.grow(Math.ceil((4 * end - memory.buffer.byteLength) / 65536));
    this.numbers = new Float32Array(memory.buffer);
    this.rows = new Float32Array(layers * heads * this.capacity);
    this.held = [];       // tokens in the cache
    this.heldMask = "";   // what was masked below the last layer when they were read
    this.frequencies = Float32Array.from(
      {length: size / 2}, (_, i) => 1 / Math.fround(this.config.theta ** (2 * i / size)));
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
     over all tokens so far. Both hold until the next step. */
  step(id, masked) {
    const {layers, heads, vocabulary} = this.config, place = this.held.length;
    const rows = this.rows.subarray(0, layers * heads * (place + 1));
    this.#forward([id], place, masked, rows);
    this.held.push(id);
    this.#norm(this.x, "output_norm.weight", 1);
    this.#times(this.logits, this.normed, "token_embd.weight", 1);
    const {at} = this.logits;
    return {logits: this.numbers.subarray(at, at + vocabulary), rows};
  }

  /* All layers for some tokens from position `start` on. Without `rows`, only what later tokens
     need is computed; with it, the attention of the one token is written there. */
  #forward(ids, start, masked, rows) {
    const {layers, heads, keyHeads, hidden, width} = this.config, count = ids.length;
    const embedding = this.tensors.get("token_embd.weight");
    ids.forEach((id, i) => this.#unpack(embedding, id, 1, this.x.at + i * width));
    for (let layer = 0; layer < layers; layer++) {
      const name = part => `blk.${layer}.${part}.weight`;
      this.#norm(this.x, name("attn_norm"), count);
      this.#times(this.k, this.normed, name("attn_k"), count);
      this.#times(this.v, this.normed, name("attn_v"), count);
      this.#rotate(this.k, keyHeads, start, count);
      this.#keep(layer, start, count);
      if (!rows && layer === layers - 1) return;
      this.#times(this.q, this.normed, name("attn_q"), count);
      this.#rotate(this.q, heads, start, count);
      for (let head = 0; head < heads; head++) {
        const index = layer * heads + head, off = masked.has(index), {at} = this.looks;
        if (rows || !off) this.#attend(layer, head, start, count);
        if (rows) rows.set(this.numbers.subarray(at, at + start + 1), index * (start + 1));
        if (off) this.#switchOff(head, count);
      }
      this.#times(this.added, this.mixed, name("attn_output"), count);
      this.#add(count * width);
      this.#norm(this.x, name("ffn_norm"), count);
      this.#times(this.gate, this.normed, name("ffn_gate"), count);
      this.#times(this.up, this.normed, name("ffn_up"), count);
      const length = count * hidden;
      const gate = this.numbers.subarray(this.gate.at, this.gate.at + length);
      const up = this.numbers.subarray(this.up.at, this.up.at + length);
      for (let i = 0; i < length; i++) gate[i] *= up[i] / (1 + Math.exp(-gate[i]));
      this.#times(this.added, this.gate, name("ffn_down"), count);
      this.#add(count * width);
    }
  }

  /* Attention of one head: softmax of q k / sqrt(size) over the tokens so far, times v. */
  #attend(layer, head, start, count) {
    const {heads, keyHeads, size} = this.config, {capacity, looks, numbers} = this;
    const cached = Math.floor(head / (heads / keyHeads)) * size * capacity;
    const columns = Math.ceil((start + count) / 4) * 4, scale = 1 / Math.sqrt(size);
    this.#product(looks, {...this.q, at: this.q.at + head * size},
                  {at: this.keys[layer] + cached, stride: size}, count, columns, size);
    for (let i = 0; i < count; i++) {
      const from = looks.at + i * capacity, to = from + start + i + 1;
      let highest = -Infinity, sum = 0;
      for (let j = from; j < to; j++) highest = Math.max(highest, numbers[j]);
      for (let j = from; j < to; j++) sum += numbers[j] = Math.exp((numbers[j] - highest) * scale);
      for (let j = from; j < to; j++) numbers[j] /= sum;
      numbers.fill(0, to, from + columns);
    }
    this.#product({...this.mixed, at: this.mixed.at + head * size}, looks,
                  {at: this.values[layer] + cached, stride: capacity}, count, size, columns);
  }

  #switchOff(head, count) {
    const {size} = this.config, {at, stride} = this.mixed;
    for (let i = 0; i < count; i++) {
      this.numbers.fill(0, at + i * stride + head * size, at + i * stride + (head + 1) * size);
    }
  }

  /* Put keys and values into the cache. */
  #keep(layer, start, count) {
    const {keyHeads, size} = this.config, {capacity, numbers} = this;
    for (let i = 0; i < count; i++) {
      for (let head = 0; head < keyHeads; head++) {
        for (let d = 0; d < size; d++) {
          const from = i * this.k.stride + head * size + d;
          numbers[this.keys[layer] + (head * capacity + start + i) * size + d]
            = numbers[this.k.at + from];
          numbers[this.values[layer] + (head * size + d) * capacity + start + i]
            = numbers[this.v.at + from];
        }
      }
    }
  }

  /* Rotary positions; a GGUF file has the two numbers of a pair beside each other. */
  #rotate({at: first, stride}, heads, start, count) {
    const half = this.config.size / 2, {numbers} = this;
    for (let i = 0; i < count; i++) {
      for (let d = 0; d < half; d++) {
        const angle = Math.fround((start + i) * this.frequencies[d]);
        const cos = Math.cos(angle), sin = Math.sin(angle);
        for (let head = 0; head < heads; head++) {
          const at = first + i * stride + 2 * (half * head + d);
          const a = numbers[at], b = numbers[at + 1];
          numbers[at] = a * cos - b * sin;
          numbers[at + 1] = b * cos + a * sin;
        }
      }
    }
  }

  /* RMSNorm into `normed`. */
  #norm({at: first, stride}, name, count) {
    const weight = this.tensors.get(name).at / 4, {eps} = this.config, {numbers, normed} = this;
    for (let i = 0; i < count; i++) {
      const at = first + i * stride, to = normed.at + i * stride;
      let sum = 0;
      for (let d = 0; d < stride; d++) sum += numbers[at + d] ** 2;
      const factor = 1 / Math.sqrt(sum / stride + eps);
      for (let d = 0; d < stride; d++) numbers[to + d] = numbers[at + d] * factor * numbers[weight + d];
    }
  }

  /* Some rows of a packed matrix, from row `first` on, as float32. */
  #unpack({type, at, depth, bytes}, first, count, to) {
    const from = at + first * bytes, blocks = count * depth / 32;
    if (type === "Q4_1") this.kernel.unpackQ4_1(from, 4 * to, blocks);
    else if (type === "Q8_0") this.kernel.unpackQ8_0(from, 4 * to, blocks);
    else this.numbers.copyWithin(to, from / 4, (from + count * bytes) / 4);
  }

  /* out = input times the transposed matrix of weights. The loop makes no objects: it runs 25,000
     times a token. */
  #times(out, input, name, count) {
    const tensor = this.tensors.get(name), {rows, depth} = tensor, {at} = this.unpacked;
    for (let row = 0; row < rows; row += Llama.ROWS) {
      this.#unpack(tensor, row, Llama.ROWS, at);
      this.kernel.product(4 * (out.at + row), 4 * out.stride, 4 * input.at, 4 * input.stride,
                          4 * at, 4 * depth, count, Llama.ROWS, depth);
    }
  }

  #product(out, a, b, rows, columns, depth) {
    this.kernel.product(4 * out.at, 4 * out.stride, 4 * a.at, 4 * a.stride, 4 * b.at, 4 * b.stride,
                        rows, columns, depth);
  }

  #add(count) {
    const {numbers} = this;
    for (let i = 0; i < count; i++) numbers[this.x.at + i] += numbers[this.added.at + i];
  }
};
