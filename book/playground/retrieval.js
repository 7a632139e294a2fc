"use strict";

/* What a head does at one step of an answer (section 2 of the paper; rmutils.heads.copy_score).
   `prompt` is {ids, needle}; a token of the answer is {id, places, weights, shares}: of each head,
   the few places that it looks at hardest, and how much it looks at the needle's answer. */
(globalThis.Playground ??= {}).retrieval = {
  /* The places that head number `index` looks at hardest, the hardest first: [place, weight]. */
  looks({places, weights, shares}, index) {
    const tops = places.length / shares.length;
    return Array.from({length: tops}, (_, i) => [places[index * tops + i], weights[index * tops + i]]);
  },

  hardest(token, index) {
    return token.places[index * token.places.length / token.shares.length];
  },

  /* It copies: it looks hardest at a token of the needle, and that token is written. */
  copies(token, index, prompt) {
    const place = Playground.retrieval.hardest(token, index), [start, end] = prompt.needle;
    return start <= place && place < end && prompt.ids[place] === token.id;
  },

  /* Equation 1 for one answer: the needle tokens that head number `index` copies; divided by the
     needle's length, it is the score. */
  copied(index, prompt, tokens) {
    const {copies, hardest} = Playground.retrieval;
    const hits = tokens.filter(token => copies(token, index, prompt));
    return new Set(hits.map(token => hardest(token, index))).size;
  },
};
