"use strict";

/* Byte-level BPE, as the `tokenizers` package does it: special tokens are cut out first, for some
   models each digit stands alone, the rest is split into words, and within a word the earliest
   merge of the training comes first. */
(globalThis.Playground ??= {}).Tokenizer = class Tokenizer {
  /* tokens: the bytes of each token as a string of characters 0 to 255; added: text -> id of those
     that are cut out first; merges: pairs of ids in the order of training; special: ids that are
     left out of a decoded text; digits: whether each stands alone. */
  constructor({tokens, added, merges, special, digits}) {
    this.tokens = tokens;
    this.added = new Map(Object.entries(added));
    this.special = new Set(special);
    const reserved = new Set(this.added.values());
    const ids = new Map();
    tokens.forEach((token, id) => reserved.has(id) || ids.set(token, id));
    this.byteIds = Array.from({length: 256}, (_, byte) => ids.get(String.fromCharCode(byte)));
    this.merges = new Map(merges.map(
      ([left, right], rank) => [left * tokens.length + right,
                                {rank, id: ids.get(tokens[left] + tokens[right])}]));
    const escaped = [...this.added.keys()].map(t => t.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    this.cut = new RegExp(escaped.join("|"), "gu");
    this.digit = digits ? /(\p{N})/u : /(?!)/;
    this.word = new RegExp(
      "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\p{White_Space}\\p{L}\\p{N}]+"
      + "|\\p{White_Space}+(?!\\P{White_Space})|\\p{White_Space}+", "gu");
    this.bytes = new TextEncoder();
  }

  /* {ids, starts, ends}: tokens, and the characters of the text that each one has a byte of.
     Special tokens spelled in the characters [from, to), which the reader wrote, are text. */
  encode(text, [from, to] = [0, 0]) {
    const found = {ids: [], starts: [], ends: []};
    let at = 0;
    for (const {0: part, index} of text.matchAll(this.cut)) {
      const id = this.added.get(part);
      if (this.special.has(id) && index >= from && index + part.length <= to) continue;
      this.#words(text.slice(at, index), at, found);
      found.ids.push(id);
      found.starts.push(index);
      found.ends.push(index + part.length);
      at = index + part.length;
    }
    this.#words(text.slice(at), at, found);
    return found;
  }

  /* Append the tokens of a text without special ones that begins at character `at`. */
  #words(text, at, found) {
    for (const piece of text.split(this.digit)) {
      for (const {0: word, index} of piece.matchAll(this.word)) {
        this.#word(word, at + index, found);
      }
      at += piece.length;
    }
  }

  /* Append the tokens of one word that begins at character `at`. */
  #word(word, at, found) {
    const ids = [], starts = [], ends = [];  // a row per byte: its token and its character
    for (const character of word) {
      for (const byte of this.bytes.encode(character)) {
        ids.push(this.byteIds[byte]);
        starts.push(at);
        ends.push(at + character.length);
      }
      at += character.length;
    }
    for (;;) {
      let best = null, place = -1;
      for (let i = 0; i + 1 < ids.length; i++) {
        const merge = this.merges.get(ids[i] * this.tokens.length + ids[i + 1]);
        if (merge && (!best || merge.rank < best.rank)) [best, place] = [merge, i];
      }
      if (!best) break;
      ids.splice(place, 2, best.id);
      starts.splice(place + 1, 1);
      ends.splice(place, 1);
    }
    found.ids.push(...ids);
    found.starts.push(...starts);
    found.ends.push(...ends);
  }

  /* The text of tokens; bytes that are no UTF-8 become the replacement character. */
  decode(ids) {
    const kept = ids.filter(id => !this.special.has(id));
    const bytes = kept.flatMap(id => Array.from(this.tokens[id], c => c.charCodeAt(0)));
    return new TextDecoder("utf-8", {ignoreBOM: true}).decode(Uint8Array.from(bytes));
  }

  /* The text of one token, special ones included. */
  text(id) {
    const bytes = Uint8Array.from(this.tokens[id], c => c.charCodeAt(0));
    return new TextDecoder("utf-8", {ignoreBOM: true}).decode(bytes);
  }
};
