"use strict";

/* A needle put into a haystack, to so many tokens and at such a depth: what
   rmutils.corpora.niah.NiahBuilder does. */
(globalThis.Playground ??= {}).Prompt = class Prompt {
  static SENTENCE_END = /[.!?]["')\]]*(?=\s)/g;

  /* frame: what stands before the context, between it and the question, and after the question. */
  constructor(tokenizer, frame) {
    this.tokenizer = tokenizer;
    this.frame = frame;
  }

  /* {ids, needle, inserted}: tokens, and the places [start, end) of the answer (the set I_k of
     section 2) and of the whole sentence. Throws an Error where something does not fit. */
  build({haystack, needle, question, answer, length, depth}) {
    const [from, to] = Prompt.within(answer, needle);
    const ends = this.tokenizer.encode(haystack).ends;
    const used = this.#count(this.#prompt("", question)) + this.#count(" " + needle);
    let size = Math.max(length - used, 0);
    for (;;) {
      if (size > ends.length) throw new Error(`The text has only ${ends.length} tokens.`);
      const [context, place] = Prompt.#insert(haystack, ends, needle, size, depth);
      const {ids, starts, ends: stops} = this.tokenizer.encode(this.#prompt(context, question));
      if (ids.length <= length) {
        const at = this.frame[0].length + place;
        const over = (start, end) => {  // tokens that share a character with [start, end)
          const inside = ids.map((_, i) => i).filter(i => starts[i] < end && stops[i] > start);
          return [inside[0], inside.at(-1) + 1];
        };
        return {ids, needle: over(at + from, at + to), inserted: over(at, at + needle.length)};
      }
      if (!size) throw new Error(`Needle and question do not fit into ${length} tokens.`);
      size = Math.max(size - (ids.length - length), 0);  // tokens merge differently at the seams
    }
  }

  /* Where the answer stands in the needle; upper or lower case. Without an answer, all of it. */
  static within(answer, needle) {
    if (!answer) return [0, needle.length];
    const escaped = answer.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    const found = new RegExp(escaped, "iu").exec(needle);
    if (!found) throw new Error("The answer must stand word for word in the needle.");
    return [found.index, found.index + found[0].length];
  }

  /* So many tokens of the haystack with the needle after the last sentence that ends before the
     depth, and the character at which the needle begins. */
  static #insert(haystack, ends, needle, size, depth) {
    const text = size ? haystack.slice(0, ends[size - 1]) : "";
    const token = Math.max(Prompt.round(size * depth) - 1, 0);
    const before = text.slice(0, size && depth ? ends[token] : 0);
    const last = [...before.matchAll(Prompt.SENTENCE_END)].at(-1);
    if (!last) return [text ? `${needle} ${text}` : needle, 0];
    const at = last.index + last[0].length;
    return [`${text.slice(0, at)} ${needle}${text.slice(at)}`, at + 1];
  }

  /* To the nearest whole number, and to the even one where two are as near, as Python does it. */
  static round(x) {
    const low = Math.floor(x);
    return x - low === 0.5 ? low + low % 2 : Math.round(x);
  }

  #prompt(context, question) {
    const [before, between, after] = this.frame;
    return before + context + between + question + after;
  }

  #count(text) {
    return this.tokenizer.encode(text).ids.length;
  }
};
