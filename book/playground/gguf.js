"use strict";

/* A GGUF file that lies at the start of a memory: its settings, its tokenizer and where each of
   its tensors is. Nothing is copied. */
(globalThis.Playground ??= {}).Gguf = class Gguf {
  static TYPES = {0: "F32", 3: "Q4_1", 8: "Q8_0"};
  static CONTROL = 3;
  static USER_DEFINED = 4;

  constructor(buffer) {
    this.view = new DataView(buffer);
    this.text = new TextDecoder();
    this.at = 0;
    if (this.#number(4) !== 0x46554747) throw new Error("This is no GGUF file.");
    this.#number(4);
    const tensors = this.#number(8), settings = this.#number(8);
    this.settings = new Map();
    for (let i = 0; i < settings; i++) this.settings.set(this.#string(), this.#value(this.#number(4)));
    const found = Array.from({length: tensors}, () => this.#tensor());
    const unit = this.settings.get("general.alignment") ?? 32;
    const start = Math.ceil(this.at / unit) * unit;
    this.tensors = new Map(found.map(([name, tensor]) =>
      [name, {...tensor, at: start + tensor.offset}]));
  }

  #number(size) {
    const at = this.at;
    this.at += size;
    return size === 1 ? this.view.getUint8(at) : size === 2 ? this.view.getUint16(at, true)
      : size === 4 ? this.view.getUint32(at, true) : Number(this.view.getBigUint64(at, true));
  }

  #string() {
    const length = this.#number(8);
    this.at += length;
    return this.text.decode(new Uint8Array(this.view.buffer, this.at - length, length));
  }

  #value(type) {
    if (type === 8) return this.#string();
    if (type === 9) {
      const of = this.#number(4), length = this.#number(8);
      return Array.from({length}, () => this.#value(of));
    }
    if (type === 5 || type === 6) {
      this.at += 4;
      return type === 5 ? this.view.getInt32(this.at - 4, true)
        : this.view.getFloat32(this.at - 4, true);
    }
    const size = {0: 1, 2: 2, 4: 4, 7: 1, 10: 8}[type];
    if (!size) throw new Error(`The GGUF file has a value of type ${type}, unknown here.`);
    return this.#number(size);
  }

  #tensor() {
    const name = this.#string();
    const shape = Array.from({length: this.#number(4)}, () => this.#number(8));
    const type = Gguf.TYPES[this.#number(4)], offset = this.#number(8);
    if (!type) throw new Error(`The tensor ${name} is packed in a way that is unknown here.`);
    return [name, {type, offset, depth: shape[0], rows: shape[1] ?? 1}];
  }

  /* The sizes of a Llama. */
  get config() {
    const of = name => this.settings.get(`llama.${name}`);
    const heads = of("attention.head_count"), width = of("embedding_length");
    return {
      layers: of("block_count"), heads, keyHeads: of("attention.head_count_kv"),
      size: of("rope.dimension_count") ?? width / heads, width, hidden: of("feed_forward_length"),
      vocabulary: this.settings.get("tokenizer.ggml.tokens").length,
      eps: of("attention.layer_norm_rms_epsilon"), theta: of("rope.freq_base"),
    };
  }

  /* What Tokenizer is made from. GGUF writes bytes as GPT-2 does: those that cannot be seen, in
     their order, as characters from 256 on. */
  get tokenizer() {
    const byteOf = new Map();
    for (let byte = 0, hidden = 256; byte < 256; byte++) {
      const seen = byte > 32 && byte < 127 || byte > 160 && byte !== 173;
      byteOf.set(seen ? byte : hidden++, String.fromCharCode(byte));
    }
    const texts = this.settings.get("tokenizer.ggml.tokens");
    const kinds = this.settings.get("tokenizer.ggml.token_type");
    const ids = new Map(texts.map((text, id) => [text, id]));
    const added = texts.flatMap((text, id) =>
      [Gguf.CONTROL, Gguf.USER_DEFINED].includes(kinds[id]) ? [[text, id]] : []);
    const reserved = new Set(added.map(([, id]) => id));
    return {
      tokens: texts.map((text, id) => reserved.has(id) ? text
        : Array.from(text, c => byteOf.get(c.charCodeAt(0))).join("")),
      added: Object.fromEntries(added),
      special: added.flatMap(([, id]) => kinds[id] === Gguf.CONTROL ? [id] : []),
      merges: this.settings.get("tokenizer.ggml.merges").map(
        pair => pair.split(" ").map(text => ids.get(text))),
    };
  }
};
