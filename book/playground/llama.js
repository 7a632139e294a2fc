"use strict";

/* A Llama: the forward pass of transformers' LlamaForCausalLM, for a whole model and a changed one
   (variants.js) that share the weights.

   The weights stay packed as they are in the GGUF file; a few rows at a time are made float32 for
   a product (kernel.wat). Each model has a cache. A prompt that begins as the last one did is read
   from there on only. The whole model keeps what goes into each layer, so a changed one begins at
   the first layer that it changes.

   A place in the memory is a number of float32 numbers; a matrix is {at, stride}. */
(globalThis.Playground ??= {}).Llama = class Llama {
  static BLOCK = 32;   // tokens of a prompt that are read together
  static ROWS = 8;     // rows of a weight matrix that are unpacked together
  static BYTES = {F32: 128, Q4_1: 20, Q8_0: 34};  // of 32 numbers
  static WHOLE = {off: new Set(), turns: () => null};  // the model as it is

  /* memory: of WebAssembly, with the file of `gguf` at its start; kernel: its exports; capacity:
     longest prompt with its answer. */
  constructor(gguf, memory, kernel, capacity) {
    this.config = gguf.config;
    const {layers, heads, keyHeads, size, width, hidden, vocabulary, theta} = this.config;
    this.tensors = new Map(Array.from(gguf.tensors, ([name, tensor]) => [
      name, {...tensor, bytes: tensor.depth / 32 * Llama.BYTES[tensor.type]}]));
    this.kernel = kernel;
    this.capacity = Math.ceil(capacity / 4) * 4;
    let end = Math.ceil(memory.buffer.byteLength / 16) * 4;  // aligned to 16 bytes
    const room = numbers => (end += Math.ceil(numbers / 4) * 4) - Math.ceil(numbers / 4) * 4;
    const matrix = (columns, rows = Llama.BLOCK) => ({at: room(rows * columns), stride: columns});
    const byLayer = numbers => Array.from({length: layers}, () => room(numbers));
    this.perLayer = keyHeads * size * this.capacity;
    const cache = () => ({
      keys: byLayer(this.perLayer),    // head, place, size
      values: byLayer(this.perLayer),  // head, size, place
      ids: [],                         // tokens that have been read
    });
    this.whole = {...cache(), inputs: byLayer(this.capacity * width)};  // place, width
    this.changed = cache();
    this.x = matrix(width);
    this.normed = matrix(width);
    this.q = matrix(heads * size);
    this.k = matrix(keyHeads * size);
    this.v = matrix(keyHeads * size);
    this.turned = matrix(size, this.capacity);
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
    this.frequencies = Float32Array.from(
      {length: size / 2}, (_, i) => 1 / Math.fround(theta ** (2 * i / size)));
  }

  /* Read a prompt as the whole model does; yields how much is read. */
  *read(ids) {
    const {whole} = this;
    whole.ids.length = Llama.#common(ids, whole.ids);
    while (whole.ids.length < ids.length) {
      const start = whole.ids.length, block = ids.slice(start, start + Llama.BLOCK);
      this.#embed(block);
      const positions = block.map((_, i) => start + i);
      for (const part of this.#block(0, {cache: whole, start, positions, model: Llama.WHOLE})) {
        yield {kind: "reading", share: (start + part * block.length) / ids.length};
      }
      whole.ids.push(...block);
    }
  }

  /* Read all that the whole model has read as the changed one does. */
  *readChanged(model) {
    const {whole, changed, numbers, perLayer} = this, {ids} = whole;
    const same = model.key === changed.key ? Llama.#common(ids, changed.ids) : 0;
    changed.ids.length = 0;
    for (let layer = 0; layer < Math.min(model.first, this.config.layers); layer++) {
      for (const part of ["keys", "values"]) {
        const from = whole[part][layer];
        numbers.copyWithin(changed[part][layer], from, from + perLayer);
      }
    }
    changed.key = model.key;
    changed.ids.push(...ids.slice(0, model.first < this.config.layers ? same : ids.length));
    while (changed.ids.length < ids.length) {
      const start = changed.ids.length, block = ids.slice(start, start + Llama.BLOCK);
      const positions = block.map((_, i) => start + i);
      this.#load(model.first, positions);
      for (const part of this.#block(model.first, {cache: changed, start, positions, model})) {
        yield {kind: "reading", share: (start + part * block.length) / ids.length};
      }
      changed.ids.push(...block);
    }
  }

  static #common(ids, others) {
    const length = ids.findIndex((id, i) => id !== others[i]);
    return length < 0 ? ids.length : length;
  }

  /* Read one token more: {logits, rows}, rows being the attention of each head, one after another,
     over all tokens so far. Both hold until the next step. */
  step(cache, id, model = Llama.WHOLE) {
    const place = cache.ids.length, rows = this.#rows(place);
    this.#embed([id]);
    for (let layer = 0; layer < this.config.layers; layer++) {
      this.#layer(layer, {cache, start: place, positions: [place], model, rows});
    }
    cache.ids.push(id);
    return {logits: this.#predict(), rows};
  }

  /* The same, but layers behind number `filter` see only the places that `choose` finds, given the
     rows of that layer and their length. They keep nothing, and read these places anew.
     place: of the token, the prompt being what the whole model has read. */
  *stepChosen(id, place, model, filter, choose) {
    const {whole, changed, config: {layers, heads}} = this;
    const rows = this.#rows(place).fill(0), last = {model, rows};
    this.#embed([id]);
    for (let layer = 0; layer <= filter; layer++) {
      this.#layer(layer, {...last, cache: whole, start: place, positions: [place]});
    }
    this.#store(filter + 1, place, 1);
    const first = filter * heads * (place + 1);
    const places = choose(rows.subarray(first, first + heads * (place + 1)), place + 1);
    const before = places.slice(0, -1);
    changed.ids.length = 0;
    for (let start = 0; start < before.length; start += Llama.BLOCK) {
      const positions = before.slice(start, start + Llama.BLOCK);
      this.#load(filter + 1, positions);
      for (const part of this.#block(filter + 1, {cache: changed, start, positions, model})) {
        yield {kind: "writing", share: part};
      }
    }
    this.#load(filter + 1, [place]);
    for (let layer = filter + 1; layer < layers; layer++) {
      this.#layer(layer, {...last, cache: changed, start: before.length, positions: [place], places});
    }
    return {logits: this.#predict(), rows};
  }

  #rows(place) {
    return this.rows.subarray(0, this.config.layers * this.config.heads * (place + 1));
  }

  #predict() {
    this.#norm(this.x, "output_norm.weight", 1);
    this.#times(this.logits, this.normed, "token_embd.weight", 1);
    return this.numbers.subarray(this.logits.at, this.logits.at + this.config.vocabulary);
  }

  /* x becomes the embeddings of some tokens. */
  #embed(ids) {
    const embedding = this.tensors.get("token_embd.weight");
    ids.forEach((id, i) => this.#unpack(embedding, id, 1, this.x.at + i * this.config.width));
  }

  /* x becomes what went into a layer of the whole model at some places. */
  #load(layer, places) {
    const {width} = this.config, inputs = this.whole.inputs[layer];
    places.forEach((place, i) => this.numbers.copyWithin(
      this.x.at + i * width, inputs + place * width, inputs + (place + 1) * width));
  }

  #store(layer, place, count) {
    const {width} = this.config;
    this.numbers.copyWithin(this.whole.inputs[layer] + place * width, this.x.at,
                            this.x.at + count * width);
  }

  /* The layers from `first` on for the tokens in x, as far as later tokens need them; yields after
     each layer the share that is done. */
  *#block(first, pass) {
    const {layers} = this.config;
    for (let layer = first; layer < layers; layer++) {
      yield (layer - first) / (layers - first);
      this.#layer(layer, pass);
    }
  }

  /* One layer for the tokens in x. A pass is {cache, start, positions, model, rows, places}: the
     tokens' places in the cache begin at `start`, and their rotary positions are given. With
     `rows`, there is one token, whose attention is written there: at the place itself, or at the
     one that `places` gives. */
  #layer(layer, {cache, start, positions, model, rows, places}) {
    const {layers, heads, keyHeads, hidden, width} = this.config, count = positions.length;
    const name = part => `blk.${layer}.${part}.weight`;
    if (cache.inputs) this.#store(layer, start, count);
    this.#norm(this.x, name("attn_norm"), count);
    this.#times(this.k, this.normed, name("attn_k"), count);
    this.#times(this.v, this.normed, name("attn_v"), count);
    this.#rotate(this.k, keyHeads, positions);
    this.#keep(cache, layer, start, count);
    if (!rows && layer === layers - 1) return;
    this.#times(this.q, this.normed, name("attn_q"), count);
    this.#rotate(this.q, heads, positions);
    for (let head = 0; head < heads; head++) {
      const index = layer * heads + head, off = model.off.has(index), {at} = this.looks;
      if (rows || !off) this.#attend(cache, layer, head, start, count, model);
      const first = rows ? index * rows.length / (layers * heads) : 0;
      if (places) places.forEach((place, i) => { rows[first + place] = this.numbers[at + i]; });
      else if (rows) rows.set(this.numbers.subarray(at, at + start + 1), first);
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

  /* Attention of one head: softmax of q k / sqrt(size) over the tokens so far, times v.
     model.turns: of each place a cosine and a sine per pair of numbers, by which queries and keys
     are turned on; null where they are not. model.adjust, if there is one, changes q k. */
  #attend(cache, layer, head, start, count, model) {
    const {heads, keyHeads, size} = this.config, {capacity, looks, numbers, turned} = this;
    const cached = Math.floor(head / (heads / keyHeads)) * size * capacity;
    const columns = Math.ceil((start + count) / 4) * 4, scale = 1 / Math.sqrt(size);
    const turns = model.turns(layer, head);
    const q = {...this.q, at: this.q.at + head * size};
    let keys = {at: cache.keys[layer] + cached, stride: size};
    if (turns) {
      this.#turn(q, q, turns.subarray(start * size), count);
      this.#turn(keys, turned, turns, start + count);
      keys = turned;
    }
    this.#product(looks, q, keys, count, columns, size);
    for (let i = 0; i < count; i++) {
      const from = looks.at + i * capacity, to = from + start + i + 1;
      let highest = -Infinity, sum = 0;
      model.adjust?.(numbers.subarray(from, to), layer, head);
      for (let j = from; j < to; j++) highest = Math.max(highest, numbers[j]);
      for (let j = from; j < to; j++) sum += numbers[j] = Math.exp((numbers[j] - highest) * scale);
      for (let j = from; j < to; j++) numbers[j] /= sum;
      numbers.fill(0, to, from + columns);
    }
    this.#product({...this.mixed, at: this.mixed.at + head * size}, looks,
                  {at: cache.values[layer] + cached, stride: capacity}, count, size, columns);
  }

  /* Turn the pairs of numbers of each row, a cosine and a sine each. */
  #turn(from, to, turns, count) {
    const {numbers} = this, {size} = this.config;
    for (let i = 0; i < count; i++) {
      for (let d = 0; d < size; d += 2) {
        const a = numbers[from.at + i * from.stride + d], b = numbers[from.at + i * from.stride + d + 1];
        const cos = turns[i * size + d], sin = turns[i * size + d + 1];
        numbers[to.at + i * to.stride + d] = a * cos - b * sin;
        numbers[to.at + i * to.stride + d + 1] = b * cos + a * sin;
      }
    }
  }

  #switchOff(head, count) {
    const {size} = this.config, {at, stride} = this.mixed;
    for (let i = 0; i < count; i++) {
      this.numbers.fill(0, at + i * stride + head * size, at + i * stride + (head + 1) * size);
    }
  }

  /* Put keys and values into a cache. */
  #keep(cache, layer, start, count) {
    const {keyHeads, size} = this.config, {capacity, numbers} = this;
    for (let i = 0; i < count; i++) {
      for (let head = 0; head < keyHeads; head++) {
        for (let d = 0; d < size; d++) {
          const from = i * this.k.stride + head * size + d;
          numbers[cache.keys[layer] + (head * capacity + start + i) * size + d]
            = numbers[this.k.at + from];
          numbers[cache.values[layer] + (head * size + d) * capacity + start + i]
            = numbers[this.v.at + from];
        }
      }
    }
  }

  /* Rotary positions; a GGUF file has the two numbers of a pair beside each other. */
  #rotate({at: first, stride}, heads, positions) {
    const half = this.config.size / 2, {numbers} = this;
    positions.forEach((position, i) => {
      for (let d = 0; d < half; d++) {
        const angle = Math.fround(position * this.frequencies[d]);
        const cos = Math.cos(angle), sin = Math.sin(angle);
        for (let head = 0; head < heads; head++) {
          const at = first + i * stride + 2 * (half * head + d);
          const a = numbers[at], b = numbers[at + 1];
          numbers[at] = a * cos - b * sin;
          numbers[at + 1] = b * cos + a * sin;
        }
      }
    });
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
