"use strict";

/* The page's address holds the scene, so that it can be shared and that a chapter can link to it:
   #model=NAME&scene=NUMBER, or the fields of the form; mask=top, random or own; k, seed, and
   heads=LAYER.HEAD,... for those of one's own choice. */
(globalThis.Playground ??= {}).address = {
  read() {
    const given = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
    const whole = name => /^\d{1,9}$/.test(given[name] ?? "") ? Number(given[name]) : null;
    const heads = (given.heads ?? "").split(",").filter(head => /^\d+\.\d+$/.test(head));
    return {...given, scene: whole("scene"), k: whole("k"), seed: whole("seed"),
            heads: heads.map(head => head.split(".").map(Number)),
            depth: Math.min(Math.max(Number(given.depth) || 0, 0), 1)};
  },

  write({model, scene, question, masking, perLayer}) {
    const {kind, count, seed, own} = masking;
    const heads = [...own].map(i => `${Math.floor(i / perLayer)}.${i % perLayer}`);
    const told = {model, ...(scene === null ? question : {scene}), mask: kind,
                  ...(kind === "own" ? {heads} : {k: count}), ...(kind === "random" ? {seed} : {})};
    history.replaceState(null, "", `#${new URLSearchParams(told)}`);
  },
};
