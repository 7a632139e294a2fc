"use strict";

/* Sentences about an answer and about one head of it. */
(globalThis.Playground ??= {}).words = {
  percent(share) {
    return `${Math.round(100 * share)}\u00a0%`;
  },

  /* A token on the screen: a line break as a sign, a space as one that keeps its width. */
  shown(text) {
    return text.replace(/\n/g, "⏎").replace(/^ +$/, spaces => "\u00a0".repeat(spaces.length));
  },

  /* A token in a sentence. */
  spoken(text) {
    return text.trim() ? `“${text.trim()}”` : text.includes("\n") ? "a line break" : "a space";
  },

  head(index, heads) {
    return `layer ${Math.floor(index / heads)}, head ${index % heads}`;
  },

  stored({mean, low, high}) {
    return `stored score ${mean.toFixed(2)} [${low.toFixed(2)},\u00a0${high.toFixed(2)}]`;
  },

  /* What the frames of the map mean. */
  framed({kind, framed}) {
    return kind === "memory" ? "remembers the whole text"
      : `among the ${framed.length} highest stored scores`;
  },

  runs: {whole: "The whole model", changed: "The changed model"},

  /* What makes the second answer. */
  changed({kind, heads, change, low, high, p, pointed, share}) {
    if (!change) return "No head is masked";
    const count = heads.size, some = `${count} head${count > 1 ? "s" : ""}`;
    const {percent} = Playground.words;
    return {top: `Without the ${count > 1 ? some : "head"} of the highest score${count > 1 ? "s" : ""}`,
            random: `Without ${some} drawn at random in the same layers`,
            own: `Without ${some} of your choice`,
            redirect: `${pointed} head${pointed > 1 ? "s" : ""} pointed at the framed sentence`,
            memory: `${percent(share)} of the heads remember the whole text`,
            decore: `Contrast with the model without ${some}: DeCoRe`,
            "ms-poe": low === high ? `Positions divided by ${low.toFixed(1)}: Ms-PoE`
              : `Positions divided by ${low.toFixed(1)} to ${high.toFixed(1)}: Ms-PoE`,
            select: `Later layers see ${percent(p)} of the attention: Select`}[kind];
  },

  /* Words in lower case, each with its place [start, end). */
  split(text) {
    return [...text.toLowerCase().matchAll(/[\p{L}\p{N}]+/gu)].map(
      ({0: word, index}) => ({word, start: index, end: index + word.length}));
  },

  /* Right or wrong: the words that count stand in a text as a whole, or not. Where nobody says which
     words of the needle count, only how many of them are there. */
  verdict({answer, needle}, text) {
    const words = s => Playground.words.split(s).map(({word}) => word);
    const said = words(text), all = words(answer || needle);
    const missing = [...new Set(all.filter(word => !said.includes(word)))];
    if (!answer) {
      return `It lacks ${missing.length} of the needle's ${new Set(all).size} words. (Say above which `
        + "of them count, and the page tells right from wrong.)";
    }
    if (` ${said.join(" ")} `.includes(` ${all.join(" ")} `)) return "✓ Right: it has the answer.";
    return `✗ Wrong. ${missing.length ? `It lacks: ${missing.join(", ")}.`
      : "It has the words, but not in this order."}`;
  },

  /* Of two lists of tokens with their texts: the numbers of those in words that the other list does
     not have, in its order (the longest common subsequence). */
  differing(tokens, others) {
    const join = list => list.map(({text}) => text).join("");
    const mine = Playground.words.split(join(tokens)), theirs = Playground.words.split(join(others));
    const common = Array.from({length: mine.length + 1}, () => new Uint16Array(theirs.length + 1));
    for (let i = mine.length - 1; i >= 0; i--) {
      for (let j = theirs.length - 1; j >= 0; j--) {
        common[i][j] = mine[i].word === theirs[j].word ? common[i + 1][j + 1] + 1
          : Math.max(common[i + 1][j], common[i][j + 1]);
      }
    }
    const alone = [];
    for (let i = 0, j = 0; i < mine.length;) {
      if (j < theirs.length && mine[i].word === theirs[j].word) [i, j] = [i + 1, j + 1];
      else if (j < theirs.length && common[i][j + 1] >= common[i + 1][j]) j++;
      else alone.push(mine[i++]);
    }
    const found = new Set();
    let at = 0;
    tokens.forEach(({text}, number) => {
      if (alone.some(({start, end}) => start < at + text.length && end > at)) found.add(number);
      at += text.length;
    });
    return found;
  },

  /* What head number `index` does when token `step` of an answer is written. */
  looking(index, prompt, tokens, step) {
    const {percent, spoken} = Playground.words, {looks, copied} = Playground.retrieval;
    const [[place, weight]] = looks(tokens[step], index);
    const text = prompt.texts[place] ?? tokens[place - prompt.ids.length].text;
    return `It looks hardest at ${spoken(text)}, token ${place} of the text, with `
      + `${percent(weight)} of its attention; ${percent(tokens[step].shares[index])} goes to the `
      + `needle's answer. In this whole answer it copies ${copied(index, prompt, tokens)} of `
      + `${prompt.needle[1] - prompt.needle[0]} needle tokens.`;
  },
};
