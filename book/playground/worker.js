"use strict";

/* An engine in a thread of its own, so that the page never freezes. The thread's program is put
   together from the text of its parts: a page that is opened as a file may not load one. */
(globalThis.Playground ??= {}).Worker = class PlaygroundWorker {
  static PARTS = ["plainKernel", "Gguf", "Tokenizer", "Prompt", "Llama", "WholeModel", "MaskedModel",
                  "Redirect", "Memory",
                  "MsPoe", "Select", "DeCoRe", "Engine"];

  constructor(model) {
    const parts = PlaygroundWorker.PARTS.map(p => `Playground.${p} = ${Playground[p]};`);
    const program = `"use strict";\nconst Playground = {};\n${parts.join("\n")}\n`
      + `(${PlaygroundWorker.serve})();`;
    const url = URL.createObjectURL(new Blob([program], {type: "text/javascript"}));
    this.thread = new Worker(url);
    URL.revokeObjectURL(url);
    this.jobs = {whole: {number: 0}, changed: {number: 0}};  // what each model is asked
    this.ready = new Promise((resolve, reject) => {
      const hear = {taken: () => this.taken(), ready: resolve,
                    failure: ({text}) => reject(new Error(text))};
      this.thread.onmessage = ({data: {run, number, event}}) => {
        if (!run) hear[event.kind](event);
        else if (number === this.jobs[run].number) this.jobs[run].listener(event);
      };
    });
    this.thread.onerror = ({message: text}) => {
      for (const {listener} of Object.values(this.jobs)) listener?.({kind: "failure", text});
    };
    this.thread.postMessage({model, kernel: Playground.KERNEL});
  }

  /* Hand over a part of the model's file, whose bytes are then no longer here; resolves when the
     thread has copied them. */
  give(part) {
    this.thread.postMessage({part}, [part.bytes.buffer]);
    return new Promise(resolve => { this.taken = resolve; });
  }

  /* Ask the whole model or the changed one; `listener` gets the events of Engine.answer, or a
     failure. The last question to this model is given up, and its listener hears no more. Without
     a question, the model rests. Where both are asked, the whole one answers first. */
  ask(run, question, listener) {
    const number = this.jobs[run].number + 1;
    this.jobs[run] = {number, listener};
    this.thread.postMessage({run, number, question});
  }

  end() {
    this.thread.terminate();
  }

  /* What the thread does. Now and then it looks whether something else has been asked. */
  static serve = () => {
    const PATIENCE = 30;  // milliseconds
    const wanted = {whole: null, changed: null};
    let engine, given = 0, busy = false;

    const answer = async () => {
      if (busy) return;
      busy = true;
      let looked = performance.now();
      for (let run; (run = wanted.whole ? "whole" : wanted.changed ? "changed" : null);) {
        const job = wanted[run], {number} = job;
        try {
          for (const event of engine.answer(job.question)) {
            postMessage({run, number, event});
            if (performance.now() - looked < PATIENCE) continue;
            await new Promise(resolve => setTimeout(resolve));
            looked = performance.now();
            if (job !== wanted[run]) break;
          }
        } catch (error) {
          postMessage({run, number, event: {kind: "failure", text: error.message}});
        }
        if (job === wanted[run]) wanted[run] = null;
      }
      busy = false;
    };

    const load = ({model, kernel, part}) => {
      if (model) engine = new Playground.Engine(model, kernel);
      else if (engine) {
        engine.take(part);
        postMessage({event: {kind: "taken"}});
        if (++given < engine.model.parts.length) return;
        engine.open();
        postMessage({event: {kind: "ready"}});
      }
    };

    onmessage = ({data}) => {
      if (data.run) {
        wanted[data.run] = data.question ? data : null;
        answer();
        return;
      }
      try {
        load(data);
      } catch (error) {
        const text = error instanceof RangeError
          ? "The browser has not enough memory for this model." : error.message;
        postMessage({event: {kind: "failure", text}});
      }
    };
  };
};
