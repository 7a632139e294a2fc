"use strict";

/* An engine in a thread of its own, so that the page never freezes. The thread's program is put
   together from the text of its parts: a page that is opened as a file may not load one. */
(globalThis.Playground ??= {}).Worker = class PlaygroundWorker {
  static PARTS = ["plainKernel", "Gguf", "Tokenizer", "Prompt", "Llama", "Engine"];

  constructor(model) {
    const parts = PlaygroundWorker.PARTS.map(p => `Playground.${p} = ${Playground[p]};`);
    const program = `"use strict";\nconst Playground = {};\n${parts.join("\n")}\n`
      + `(${PlaygroundWorker.serve})();`;
    const url = URL.createObjectURL(new Blob([program], {type: "text/javascript"}));
    this.thread = new Worker(url);
    URL.revokeObjectURL(url);
    this.thread.onmessage = ({data: {job, event}}) => {
      if (job === this.job) this.listener?.(event);
    };
    this.thread.onerror = error => this.listener?.({kind: "failure", text: error.message});
    this.job = 0;
    this.ready = new Promise((resolve, reject) => {
      this.listener = event => {
        if (event.kind === "taken") this.taken();
        else if (event.kind === "ready") resolve();
        else reject(new Error(event.text));
      };
    });
    this.thread.postMessage({model, kernel: Playground.KERNEL});
  }

  /* Hand over a part of the model's file, whose bytes are then no longer here; resolves when the
     thread has copied them. */
  give(part) {
    this.thread.postMessage({part}, [part.bytes.buffer]);
    return new Promise(resolve => { this.taken = resolve; });
  }

  /* Ask; `listener` gets the events of Engine.answer, or a failure. The question before this one
     is given up, and its listener hears no more. Without a question, the thread rests. */
  ask(question, listener) {
    this.job += 1;
    this.listener = listener;
    this.thread.postMessage({job: this.job, question});
  }

  end() {
    this.thread.terminate();
  }

  /* What the thread does. Between two events it looks whether something else has been asked. */
  static serve = () => {
    let engine, current = 0, given = 0;

    const answer = async ({job, question}) => {
      current = job;
      if (!question) return;
      for (const event of engine.answer(question)) {
        postMessage({job, event});
        await new Promise(resolve => setTimeout(resolve));
        if (job !== current) return;
      }
    };

    onmessage = async ({data}) => {
      try {
        if (data.model) engine = new Playground.Engine(data.model, data.kernel);
        else if (!data.part) await answer(data);
        else if (engine) {
          engine.take(data.part);
          postMessage({job: 0, event: {kind: "taken"}});
          if (++given < engine.model.parts.length) return;
          engine.open();
          postMessage({job: 0, event: {kind: "ready"}});
        }
      } catch (error) {
        const text = error instanceof RangeError
          ? "The browser has not enough memory for this model." : error.message;
        postMessage({job: data.job ?? 0, event: {kind: "failure", text}});
      }
    };
  };
};
