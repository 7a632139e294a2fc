"use strict";

/* A needle put into a haystack at a depth, as rmutils.corpora.niah.NiahBuilder does it with a
   haystack that is cut to length already. */
(globalThis.Playground ??= {}).Prompt = class Prompt {
  static SENTENCE_END = /[.!?]["')\]]*(?=\s)/g;

  /* frame: what stands before the context, between it and the question, and after the question;
     longest: tokens of the longest prompt. */
  constructor(tokenizer, frame, longest) {
    this.tokenizer = tokenizer;
    this.frame = frame;
    this.longest = longest;
  }

  /* {ids, needle, inserted}: tokens, and the places [start, end) of the answer (the set I_k of
     section 2) and of the whole sentence. Throws an Error where something does not fit. */
  build({haystack, needle, question, answer, depth}) {
    const [from, to] = Prompt.within(answer, needle);
    const [context, place] = this.#insert(haystack, needle, depth);
    const [before, between, after] = this.frame;
    const text = before + context + between + question + after;
    const {ids, starts, ends} = this.tokenizer.encode(
      text, [before.length, text.length - after.length]);
    if (ids.length > this.longest) {
      throw new Error(`Text and question have ${ids.length} tokens, and ${this.longest} fit here. `
        + "Make the text shorter.");
    }
    const at = before.length + place;
    const over = (start, end) => {  // tokens that share a character with [start, end)
      const inside = ids.map((_, i) => i).filter(i => starts[i] < end && ends[i] > start);
      return [inside[0], inside.at(-1) + 1];
    };
    return {ids, needle: over(at + from, at + to), inserted: over(at, at + needle.length)};
  }

  /* The sentences of a prompt's context, as places [start, end) of the tokens with these texts. */
  static sentences(texts, [before, between]) {
    const text = texts.join(""), last = text.lastIndexOf(between);
    let at = 0;
    const tokens = texts.map(part => [at, at += part.length]);
    const ends = [...text.matchAll(Prompt.SENTENCE_END)].map(({0: end, index}) => index + end.length)
      .filter(end => before.length < end && text.slice(end, last).trim());
    return [...ends, last].map((end, i) => {
      const from = ends[i - 1] ?? before.length, start = from + text.slice(from).search(/\S/);
      const inside = tokens.flatMap(([a, b], place) => a < end && b > start ? [place] : []);
      return [inside[0], inside.at(-1) + 1];
    });
  }

  /* Where the answer stands in the needle: upper or lower case, as whole words if it does so
     anywhere. Without an answer, all of it. */
  static within(answer, needle) {
    if (!answer) return [0, needle.length];
    const escaped = answer.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    const found = [...needle.matchAll(new RegExp(`(?=(${escaped}))`, "giu"))].map(
      ({1: words, index}) => [index, index + words.length]);
    const joined = at => /^[\p{L}\p{M}\p{N}]{2}$/u.test(needle.slice(Math.max(at - 1, 0), at + 1));
    const whole = found.filter(place => !place.some(joined));
    const [place, another] = whole.length ? whole : found;
    if (!place) throw new Error("The answer must stand word for word in the needle.");
    if (another) throw new Error("The answer stands in the needle more than once: give more of it.");
    return place;
  }

  /* The haystack with the needle after the last sentence that ends before the depth, and the
     character at which the needle begins. */
  #insert(text, needle, depth) {
    const {ends} = this.tokenizer.encode(text, [0, text.length]);
    const token = Math.max(Prompt.round(ends.length * depth) - 1, 0);
    const before = text.slice(0, depth ? ends[token] : 0);
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
};
