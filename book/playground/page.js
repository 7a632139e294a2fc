"use strict";

/* The page: what a click does, and what is shown. Text that was typed or generated is only ever
   set as text, never as HTML. */
(globalThis.Playground ??= {}).Page = class Page {
  static PACE = 600;  // milliseconds per token while playing

  constructor(models) {
    const {at} = Playground.Form;
    this.models = models;
    this.loaded = new Map();  // name -> promise of its thread
    this.form = new Playground.Form(question => this.ask(question), scene => {
      this.changed.sentence = null;
      this.begin(scene);
    });
    this.answers = {};
    for (const run of ["whole", "changed"]) {
      this.answers[run] = new Playground.Answers(at(run), step => this.choose(run, step),
        step => this.#showNext(step < 0 ? this.token : this.runs[run]?.tokens[step]));
    }
    this.map = new Playground.HeadMap(at("map"), head => this.look(head), head => this.toggle(head));
    this.text = new Playground.PromptText(at("text"), place => this.point(place));
    at("model").append(...models.map(({name, parameters}) =>
      new Option(`${name}, ${Math.round(parameters / 1e6)} million weights`, name)));
    for (const [name, event, act] of [
      ["model", "change", () => this.open(at("model").value)],
      ["stop", "click", () => this.stop()],
      ["again", "click", () => this.change({seed: this.changed.seed + 1})],
      ["toggle", "click", () => this.toggle(this.head)],
      ["play", "click", () => this.play()],
    ]) at(name).addEventListener(event, act);
    this.knobs = new Playground.Knobs(choice => this.change(choice));
    window.addEventListener("hashchange", () => this.#arrive());
    document.getElementById("pg").hidden = false;
    this.#arrive();
  }

  /* Show what the address says, else the first scene with its answer. */
  #arrive() {
    const given = Playground.address.read(), {at} = Playground.Form;
    const model = this.models.find(({name}) => name === given.model) ?? this.#fitting();
    this.open(model.name);
    if (given.needle && given.question) {
      this.form.fill(given);
      this.begin(null);
    } else if (model.scenes[given.scene] && given.scene) {
      this.form.take(given.scene);
      this.begin(given.scene);
    }
    const {changed} = this, {layers, heads} = model;
    const here = ([layer, head]) => layer < layers && head < heads;
    const number = ([layer, head]) => layer * heads + head;
    changed.own = new Set(given.heads.filter(here).map(number));
    for (const name of [
      "seed", "pointed", "strength", "sentence", "share", "cap", "low", "high", "p",
    ]) changed[name] = given[name] ?? changed[name];
    changed.high = Math.max(changed.low, changed.high);
    changed.count = Math.min(given.k ?? changed.count, Number(at("count").max));
    if (Playground.ChangedModel.KINDS.includes(given.change)) changed.kind = given.change;
    if (given.head && here(given.head)) this.head = number(given.head);
    if (!changed.untouched) this.#forget("changed");
    if (this.runs.whole) this.#settle();
    this.show();
  }

  /* The first model, if this machine can take it, else the last and smallest one. */
  #fitting() {
    const simd = Playground.Engine.hasSimd(Playground.KERNEL);
    const memory = navigator.deviceMemory ?? 8;  // gigabytes; not all browsers tell
    this.lacking = !simd ? "This browser's WebAssembly has no SIMD, which the larger model needs."
      : memory < 4 ? `This device has about ${memory} GB of memory; the larger model needs 4.`
      : this.models.length < 2 ? "Only the teaching model is here: when this book was built, "
        + "smollm2-135m had not been fetched (rmutils models fetch smollm2-135m)." : "";
    return this.lacking ? this.models.at(-1) : this.models[0];
  }

  /* Take up a model: its scenes, its map and the answer that came with the page. */
  open(name) {
    const {at} = Playground.Form;
    this.stop();
    this.thread = null;
    this.model = this.models.find(model => model.name === name);
    at("model").value = name;
    this.changed = new Playground.ChangedModel(this.model);
    [this.head] = this.changed.order;
    this.map.open(this.model);
    this.form.offer(this.model.scenes);
    this.form.take(0);
    this.#madeBy(this.model);
    this.begin(0);
  }

  /* Where the numbers come from. */
  #madeBy({name, precision, detection: {result, command, found, cases}}) {
    const rows = {
      model: `${name}, ${precision}`, "stored scores": result, command,
      cases: `${found} of ${cases} found; in brackets the 95 % interval over needles`,
    };
    Playground.Form.at("made").replaceChildren(
      ...Object.entries(rows).flatMap(([k, v]) => [["dt", k], ["dd", v]]).map(([tag, text]) => {
        const element = document.createElement(tag);
        element.textContent = text;
        return element;
      }));
  }

  /* Another question is there: the old answers go. The first scene's came with the page. */
  begin(scene) {
    const {model} = this, {tell} = Playground.Form;
    this.stop();
    this.#forget("whole");
    this.#forget("changed");
    this.chosen = {run: "whole", step: 0};
    this.text.clear();
    this.sentences = [];
    Playground.Form.at("sentence").replaceChildren();
    if (scene === 0) {
      this.question = model.scenes[0];
      for (const [name, {prompt, tokens}] of Object.entries(model.first)) {
        this.runs[name] = {prompt, tokens: [], ended: true, stopped: true};
        this.#opened(name, prompt);
        for (const token of tokens) this.#wrote(name, token);
      }
      this.#settle();
      tell("These answers came with the page. Ask lets the model answer here.", 0);
    } else tell("Ask lets the model answer.", 0);
    Playground.Form.at("about").textContent = [this.lacking, model.words
      ? "The teaching model was trained on an invented world; it knows no other words."
      : "A general language model, small but real: write any English text."].join(" ");
    this.show();
  }

  #forget(name) {
    this.runs = {...this.runs, [name]: null};
    this.answers[name].clear();
  }

  /* Both answers; the model is loaded first, if it is not yet. */
  async ask(question) {
    const {tell, at} = Playground.Form, {model} = this;
    this.begin(null);
    this.question = question;
    const asked = this.asked = {};
    this.#keepAddress();
    at("stop").disabled = false;
    const tellShare = share => this.asked === asked
      && tell(`Loading ${model.name}, ${Math.round(model.bytes / 1e6)} MB ...`, share);
    tellShare(0);
    try {
      if (!this.loaded.has(model.name)) {
        this.loaded.set(model.name, Playground.LoadedModel.load(model, tellShare));
      }
      const thread = await this.loaded.get(model.name);
      if (this.asked !== asked) return;
      this.thread = thread;
      const unknown = this.#unknown(question);
      at("about").textContent = unknown.length ? `The teaching model does not know: `
        + `${unknown.join(", ")}. It can only copy such words piece by piece.` : "";
      this.#run("whole", {kind: "WholeModel"});
      this.#askChanged();
    } catch (error) {
      this.loaded.delete(model.name);
      if (this.asked !== asked) return;
      this.asked = null;
      at("stop").disabled = true;
      tell(`${error.message}${model === this.models.at(-1) ? ""
        : " The teaching model, which is small, can be chosen above."}`, 0);
    }
  }

  /* Words that stand nowhere in the texts of the invented world. */
  #unknown({needle, question}) {
    if (!this.model.words) return [];
    const known = new Set(this.model.words), {split} = Playground.words;
    return [...new Set(split(`${needle} ${question}`).map(({word}) => word))]
      .filter(word => !known.has(word));
  }

  /* Give up what is being answered or loaded. */
  stop() {
    const {at, tell} = Playground.Form;
    if (at("stop").disabled) return;
    for (const run of ["whole", "changed"]) this.thread?.ask(run, null, null);
    this.asked = null;
    at("stop").disabled = true;
    tell("Stopped.", 0);
  }

  #run(name, change) {
    const run = {tokens: [], prompt: null, ended: false, started: performance.now()};
    const {tell, at} = Playground.Form;
    this.#forget(name);
    this.runs[name] = run;
    at("stop").disabled = false;
    if (name === "whole" || this.runs.whole?.ended) tell("Reading the text ...", 0);
    const hear = {
      prompt: prompt => this.#opened(name, prompt),
      reading: ({share}) => tell(`${Playground.words.runs[name]} reads the text ...`, share),
      writing: ({share}) => tell(`${Playground.words.runs[name]} writes ...`, share),
      token: token => this.#wrote(name, token),
      failure: ({text}) => {
        this.stop();
        tell(text, 0);
      },
      end: ({stopped}) => {
        run.ended = true;
        run.stopped = stopped;
        run.seconds = (performance.now() - run.started) / 1000;
        if (name === "whole") this.#settle();
        if (Object.values(this.runs).every(one => !one || one.ended)) this.#finished();
      },
    };
    this.thread.ask(name, {...this.question, change}, event => {
      if (this.runs[name] !== run) return;  // forgotten meanwhile
      hear[event.kind](event);
      if (!["reading", "writing"].includes(event.kind)) this.show();
    });
    this.show();
  }

  /* How long it took. */
  #finished() {
    const {at, tell} = Playground.Form, {whole} = this.runs;
    at("stop").disabled = true;
    const writing = (whole.seconds - whole.first) / Math.max(whole.tokens.length - 1, 1);
    tell(`Read ${whole.prompt.ids.length} tokens and wrote the first one after `
      + `${whole.first.toFixed(1)} s, then ${(1 / writing).toFixed(1)} tokens a second.`, 1);
  }

  #opened(name, prompt) {
    this.runs[name].prompt = prompt;
    if (name !== "whole") return;
    const {texts} = prompt, sentences = Playground.Prompt.sentences(texts, this.model.frame);
    this.sentences = sentences;
    this.inserted = sentences.findIndex(([, end]) => end === prompt.inserted[1]);
    this.text.open(prompt);
    Playground.Form.at("sentence").replaceChildren(...sentences.map(([start, end], number) =>
      new Option(texts.slice(start, end).join("").trim(), number)));
  }

  /* Let the changed model answer from the sentence of a token that is clicked. */
  point(place) {
    const sentence = this.sentences.findIndex(([start, end]) => start <= place && place < end);
    if (sentence < 0) return;
    this.change({kind: "redirect", sentence: sentence === this.inserted ? null : sentence});
    Playground.Form.at("answers").scrollIntoView({block: "nearest"});
  }

  #wrote(name, token) {
    const run = this.runs[name], {copies} = Playground.retrieval;
    run.first ??= (performance.now() - run.started) / 1000;
    token.copies = this.model.scores.map((_, head) => copies(token, head, run.prompt));
    token.copied = token.copies.some(Boolean);
    run.tokens.push(token);
    this.answers[name].add(token);
    if (name === "whole") this.chosen = {run: name, step: run.tokens.length - 1};
  }

  /* The whole model has answered: show the first token that the chosen head copies. */
  #settle() {
    const first = this.runs.whole.tokens.findIndex(token => token.copies[this.head]);
    this.chosen = {run: "whole", step: Math.max(first, 0)};
  }

  #askChanged() {
    this.#forget("changed");
    const {change} = this.changed;
    this.thread?.ask("changed", null, null);
    if (this.thread && this.asked && change) this.#run("changed", change);
  }

  choose(run, step) {
    this.chosen = {run, step};
    this.show();
  }

  look(head) {
    this.head = head;
    this.show();
  }

  toggle(head) {
    this.changed.toggle(head);
    this.change({});
  }

  /* Change the model in another way, and let it answer once more, if it is loaded. */
  change(choice) {
    Object.assign(this.changed, choice);
    if (this.asked) {
      this.#keepAddress();
      this.#askChanged();
    } else {
      this.#forget("changed");
      Playground.Form.tell("Ask lets the model answer with this change.", 0);
    }
    this.show();
  }

  #keepAddress() {
    const {model, form, question, changed, head} = this;
    Playground.address.write({model: model.name, scene: form.scene, question, changed, head});
  }

  /* Go through the tokens of the chosen answer, one after the other. */
  play() {
    const {run} = this.chosen;
    let step = 0;
    clearInterval(this.playing);
    this.playing = setInterval(() => {
      if (step < (this.runs[run]?.tokens.length ?? 0)) this.choose(run, step++);
      else clearInterval(this.playing);
    }, Page.PACE);
  }

  /* Bring all of the page in line with what is known and chosen. */
  show() {
    const {words, retrieval} = Playground, {model, head, changed} = this, masked = changed.heads;
    const run = this.runs[this.chosen.run]?.tokens.length ? this.chosen.run : "whole";
    const {prompt, tokens} = this.runs[run] ?? {tokens: []};
    const step = Math.min(this.chosen.step, tokens.length - 1), token = tokens[step];
    this.token = token;
    this.#showAnswers(run, step);
    this.#showNext(token);
    this.knobs.show(changed);
    const {at} = Playground.Form, read = prompt?.ids.length;
    at("cache").textContent = read ? words.percent(changed.left(read)) : "a part";
    this.map.show({...token, masked, top: changed.framed, chosen: head});
    const name = words.head(head, model.heads);
    at("moment").textContent = token
      ? `${words.runs[run]} writes `
        + `${words.spoken(token.text)}, token ${step + 1} of ${tokens.length}. The map, layer by `
        + "layer, shows where each head looks at that moment."
      : "After a click on Ask, the map shows where each head looks.";
    at("detail").textContent = `${name[0].toUpperCase()}${name.slice(1)}: `
      + `${words.stored(model.scores[head])}${masked.has(head) ? ", masked" : ""}. `
      + (token ? words.looking(head, prompt, tokens, step) : "");
    this.#showCard(head);
    at("toggle").textContent = `${masked.has(head) ? "Unmask" : "Mask"} ${name}`;
    const pointed = changed.kind === "redirect" ? changed.sentence ?? this.inserted : -1;
    at("sentence").value = pointed;
    this.text.frame(this.sentences[pointed] ?? []);
    if (token) {
      const path = tokens.map(one => retrieval.hardest(one, head));
      this.text.paint(retrieval.looks(token, head), path, tokens.slice(0, step), step);
    }
  }

  /* What the chosen head does on ordinary text, where that is stored. */
  #showCard(head) {
    const {at} = Playground.Form, {cards, heads} = this.model;
    const card = cards?.cards.find(({head: [layer, own]}) => layer * heads + own === head);
    at("work").hidden = !card;
    if (!card || this.card === card) return;
    this.card = card;
    // Its score there is one of other texts than the one above.
    at("card").replaceChildren(Figures.headCard(cards, {...card, score: null}));
    at("cards").href = `chapters/heads_at_work.html#head-${cards.name}-${card.head.join("-")}`;
  }

  /* The tokens that could have stood there. */
  #showNext(token) {
    const {at} = Playground.Form, {spoken} = Playground.words;
    at("next-name").textContent = token ? `Likely where ${spoken(token.text)} stands` : "Likely words";
    Playground.bars(at("next"), (token?.next ?? []).map(([id, text, share]) =>
      [this.model.stop.includes(id) ? "the end" : spoken(text), share]));
  }

  #showAnswers(run, step) {
    const {at} = Playground.Form, {words} = Playground, {whole, changed} = this.runs;
    const both = whole?.ended && changed?.ended;
    const {kind, sentence} = this.changed, elsewhere = kind === "redirect" && sentence !== null;
    for (const [name, mine, other] of [["whole", whole, changed], ["changed", changed, whole]]) {
      this.answers[name].mark(name === run ? step : -1,
                              both ? words.differing(mine.tokens, other.tokens) : new Set());
      at(`${name}-found`).textContent = name === "changed" && elsewhere ? ""
        : mine?.ended ? words.verdict(
        this.question, mine.tokens.map(t => t.text).join(""))
        + (mine.stopped ? "" : ` Cut after ${mine.tokens.length} tokens.`) : "";
    }
  }
};

Playground.page = new Playground.Page(Playground.models);
