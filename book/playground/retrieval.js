"use strict";

/* What a head does at one step of an answer, from its attention row (section 2 of the paper;
   rmutils.heads.copy_score). `prompt` is {ids, needle}, a token of the answer {id, looks}: what it is,
   and the attention rows of all heads that decided it. */
(globalThis.Playground ??= {}).retrieval = {
  /* The rows of so many heads, which come one after another, as a list. */
  split(rows, heads) {
    const length = rows.length / heads;
    return Array.from({length: heads}, (_, i) => rows.subarray(i * length, (i + 1) * length));
  },

  /* The place that it looks at hardest. */
  hardest(row) {
    let best = 0;
    for (let j = 1; j < row.length; j++) if (row[j] > row[best]) best = j;
    return best;
  },

  /* How much of its attention goes to the needle. */
  onNeedle(row, {needle: [start, end]}) {
    return row.subarray(start, end).reduce((sum, weight) => sum + weight, 0);
  },

  /* It copies: it looks hardest at a token of the needle, and that token is written. */
  copies(row, prompt, token) {
    const place = Playground.retrieval.hardest(row), [start, end] = prompt.needle;
    return start <= place && place < end && prompt.ids[place] === token.id;
  },

  /* Equation 1 for one answer: the needle tokens that head number `index` copies; divided by the
     needle's length, it is the score. */
  copied(index, prompt, tokens) {
    const {copies, hardest} = Playground.retrieval;
    const hits = tokens.filter(token => copies(token.looks[index], prompt, token));
    return new Set(hits.map(token => hardest(token.looks[index]))).size;
  },
};
