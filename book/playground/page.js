"use strict";

/* The page: what a click does, and what is shown. Text that was typed or generated is only ever
   set as text, never as HTML. */
(globalThis.Playground ??= {}).Page = class Page {
  static PACE = 600;  // milliseconds per token while playing

  constructor(data) {
    const {at} = Playground.Form;
    this.data = data;
    this.worker = new Playground.Worker(data);
    this.form = new Playground.Form(data.cases, question => this.ask(question));
    this.answers = {};
    for (const run of ["whole", "masked"]) {
      this.answers[run] = new Playground.Answers(at(run), step => this.choose(run, step));
    }
    this.map = new Playground.HeadMap(at("map"), data, head => this.look(head),
                                      head => this.toggle(head));
    this.text = new Playground.PromptText(at("text"));
    this.runs = {whole: null, masked: null};  // {prompt, tokens, ended}
    this.chosen = {run: "whole", step: 0};
    this.head = data.scores.reduce((best, {mean}, i, all) => mean > all[best].mean ? i : best, 0);
    at("tau").value = data.tau;
    at("tau-book").textContent = data.tau;
    this.masked = this.#reaching();
    for (const [name, event, act] of [
      ["tau", "input", () => this.mask(this.#reaching())],
      ["mask", "click", () => this.mask(this.#reaching())],
      ["unmask", "click", () => this.mask(new Set())],
      ["play", "click", () => this.play()],
    ]) at(name).addEventListener(event, act);
    this.#madeBy(data);
    this.show();
    document.getElementById("pg").hidden = false;
  }

  /* Where the numbers come from. */
  #madeBy({model, detection: {result, command, found, cases}}) {
    const rows = {
      model: `${model}, float32`, "stored scores": result, command,
      cases: `${found} of ${cases} found; in brackets the 95 % interval over needles`,
    };
    for (const [tag, text] of Object.entries(rows).flatMap(([k, v]) => [["dt", k], ["dd", v]])) {
      const element = document.createElement(tag);
      element.textContent = text;
      Playground.Form.at("made").append(element);
    }
  }

  /* Heads with a stored score of at least tau. */
  #reaching() {
    const tau = Number(Playground.Form.at("tau").value);
    return new Set(this.data.scores.flatMap(({mean}, i) => mean >= tau ? [i] : []));
  }

  /* Both answers, the whole model's first. */
  ask(question) {
    this.question = question;
    this.#forget("masked");
    this.#run("whole", []);
  }

  #forget(name) {
    this.runs[name] = null;
    this.answers[name].clear();
  }

  #run(name, masked) {
    const run = {tokens: [], prompt: null, ended: false}, started = performance.now();
    const {tell} = Playground.Form;
    this.#forget(name);
    this.runs[name] = run;
    const hear = {
      prompt: prompt => this.#opened(name, prompt),
      reading: ({share}) => tell("Reading the prompt ...", share),
      token: token => this.#wrote(name, token),
      failure: ({text}) => tell(text, 0),
      end: () => {
        const seconds = ((performance.now() - started) / 1000).toFixed(1);
        run.ended = true;
        tell(`Answered in ${seconds} s${masked.length
          ? `, with ${Playground.words.masked(masked.length)}` : ""}.`, 1);
        if (name === "whole") this.#settle();
      },
    };
    this.worker.ask({...this.question, masked}, event => {
      if (this.runs[name] !== run) return;  // forgotten meanwhile
      hear[event.kind](event);
      this.show();
    });
    this.show();
  }

  #opened(name, prompt) {
    this.runs[name].prompt = prompt;
    if (name === "whole") {
      this.chosen = {run: name, step: 0};
      this.text.open(prompt);
    }
  }

  #wrote(name, token) {
    const {prompt, tokens} = this.runs[name], {split, copies, onNeedle} = Playground.retrieval;
    token.looks = split(token.rows, this.data.scores.length);
    token.shares = token.looks.map(row => onNeedle(row, prompt));
    token.copies = token.looks.map(row => copies(row, prompt, token));
    tokens.push(token);
    this.answers[name].add(token);
    if (name === "whole") this.chosen = {run: name, step: tokens.length - 1};
  }

  /* The whole model has answered: show the first token that the chosen head copies, and ask
     without the masked heads. */
  #settle() {
    const first = this.runs.whole.tokens.findIndex(token => token.copies[this.head]);
    this.chosen = {run: "whole", step: Math.max(first, 0)};
    this.#askMasked();
  }

  #askMasked() {
    if (!this.runs.whole?.ended) return;
    if (this.masked.size) this.#run("masked", [...this.masked]);
    else this.#forget("masked");
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
    const masked = new Set(this.masked);
    if (!masked.delete(head)) masked.add(head);
    this.mask(masked);
  }

  mask(heads) {
    this.masked = heads;
    this.#askMasked();
    this.show();
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
    const {at} = Playground.Form, {words} = Playground, {data, head, masked} = this;
    const run = this.runs[this.chosen.run]?.tokens.length ? this.chosen.run : "whole";
    const {prompt, tokens} = this.runs[run] ?? {tokens: []};
    const step = Math.min(this.chosen.step, tokens.length - 1), token = tokens[step];
    for (const name of ["whole", "masked"]) {
      const said = this.runs[name];
      this.answers[name].mark(name === run ? step : -1);
      at(`${name}-found`).textContent = said?.ended ? words.found(
        this.question.answer || this.question.needle, said.tokens.map(t => t.text).join("")) : "";
    }
    at("masked-name").textContent = words.masked(masked.size);
    at("tau-shown").textContent = Number(at("tau").value).toFixed(2);
    this.map.show({...token, masked, chosen: head});
    at("moment").textContent = token
      ? `${run === "whole" ? "The whole model" : "The masked model"} writes `
        + `“${words.visible(token.text).trim()}”, token ${step + 1} of ${tokens.length}.`
      : "After a click on Ask, the heads show how much they look at the needle.";
    const name = words.head(head, data.config.heads), off = masked.has(head) ? ", masked" : "";
    at("detail").textContent = `${name[0].toUpperCase()}${name.slice(1)}: `
      + `${words.stored(data.scores[head])}${off}. `
      + (token ? words.looking(head, prompt, tokens, step) : "");
    if (token) this.text.paint(token.looks[head], tokens.slice(0, step));
  }
};

Playground.page = new Playground.Page(Playground.data);
