"use strict";

/* The page's address holds the scene, so that it can be shared and that a chapter can link to it:
   #model=NAME&scene=NUMBER, or the fields of the form; change=top, random, own, redirect, memory,
   decore, ms-poe or select, with its settings: k heads, a seed, heads=LAYER.HEAD,... of one's own
   choice, how many are pointed, how strongly, at which sentence (none: the needle's), the share of
   key heads that remember all, DeCoRe's cap, Ms-PoE's low and high ratio, Select's p;
   head=LAYER.HEAD, whose path is shown. */
(globalThis.Playground ??= {}).address = {
  /* Settings of each kind of change. */
  SETTINGS: {top: ["k"], random: ["k", "seed"], own: ["heads"],
             redirect: ["pointed", "strength", "sentence"], memory: ["share"],
             decore: ["k", "cap"], "ms-poe": ["low", "high"], select: ["p"]},

  read() {
    const given = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
    const whole = name => /^\d{1,9}$/.test(given[name] ?? "") ? Number(given[name]) : null;
    const between = (name, least, most) => /^\d*\.?\d+$/.test(given[name] ?? "")
      ? Math.min(Math.max(Number(given[name]), least), most) : null;
    const heads = text => (text ?? "").split(",").filter(head => /^\d+\.\d+$/.test(head))
      .map(head => head.split(".").map(Number));
    return {...given, scene: whole("scene"), k: whole("k"), seed: whole("seed"),
            pointed: whole("pointed") ? between("pointed", 1, 30) : null,
            strength: between("strength", 0, 10),
            sentence: whole("sentence"), share: between("share", 0, 1),
            heads: heads(given.heads), head: heads(given.head)[0] ?? null,
            cap: between("cap", 0, 4.75), low: between("low", 1, 4), high: between("high", 1, 4),
            p: between("p", 0.5, 1), depth: Math.min(Math.max(Number(given.depth) || 0, 0), 1)};
  },

  write({model, scene, question, changed, head}) {
    const named = i => `${Math.floor(i / changed.perLayer)}.${i % changed.perLayer}`;
    const settings = {...changed, k: changed.count, heads: [...changed.own].map(named)};
    const told = {model, ...(scene === null ? question : {scene}), change: changed.kind};
    for (const name of Playground.address.SETTINGS[changed.kind]) {
      if (settings[name] !== null) told[name] = settings[name];
    }
    history.replaceState(null, "", `#${new URLSearchParams({...told, head: named(head)})}`);
  },
};
