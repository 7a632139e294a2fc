"use strict";

/* Sentences about an answer and about one head of it. */
(globalThis.Playground ??= {}).words = {
  percent(share) {
    return `${Math.round(100 * share)}\u00a0%`;
  },

  /* Line breaks and lone spaces as signs, so that they can be seen. */
  visible(text) {
    return text.replace(/\n/g, "⏎").replace(/^ +$/, "␣");
  },

  head(index, heads) {
    return `layer ${Math.floor(index / heads)}, head ${index % heads}`;
  },

  stored({mean, low, high}) {
    return `stored score ${mean.toFixed(2)} [${low.toFixed(2)},\u00a0${high.toFixed(2)}]`;
  },

  masked(count) {
    return count ? `${count} head${count > 1 ? "s" : ""} masked` : "No head is masked";
  },

  /* How many words of the needle's answer are in a text. */
  found(wanted, text) {
    const words = s => s.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
    const said = words(text), all = words(wanted);
    const came = all.filter(word => {
      const at = said.indexOf(word);
      if (at >= 0) said.splice(at, 1);
      return at >= 0;
    });
    return `${came.length} of ${all.length} words of the needle's answer.`;
  },

  /* What head number `index` does when token `step` of an answer is written. */
  looking(index, prompt, tokens, step) {
    const {percent, visible} = Playground.words, {hardest, copied} = Playground.retrieval;
    const {looks, shares} = tokens[step], row = looks[index], place = hardest(row);
    const text = prompt.texts[place] ?? tokens[place - prompt.ids.length].text;
    return `It looks hardest at “${visible(text).trim()}”, token ${place}, with `
      + `${percent(row[place])} of its attention; ${percent(shares[index])} goes to the needle's `
      + `answer. In this whole answer it copies ${copied(index, prompt, tokens)} of `
      + `${prompt.needle[1] - prompt.needle[0]} needle tokens.`;
  },
};
