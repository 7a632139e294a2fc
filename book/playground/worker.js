"use strict";

/* The engine in a thread of its own, so that the page never freezes. The thread's program is put
   together from the text of its parts: a page that is opened as a file may not load one. */
(globalThis.Playground ??= {}).Worker = class PlaygroundWorker {
  static PARTS = ["product", "Tokenizer", "Prompt", "Llama", "Engine"];

  constructor(data) {
    const parts = PlaygroundWorker.PARTS.map(p => `Playground.${p} = ${Playground[p]};`);
    const program = `"use strict";\nconst Playground = {};\n${parts.join("\n")}\n`
      + `(${PlaygroundWorker.serve})();`;
    const url = URL.createObjectURL(new Blob([program], {type: "text/javascript"}));
    this.thread = new Worker(url);
    URL.revokeObjectURL(url);
    this.thread.onmessage = ({data: {job, event}}) => {
      if (job === this.job) this.listener(event);
    };
    this.thread.onerror = error => this.listener?.({kind: "failure", text: error.message});
    this.thread.postMessage(data);
    this.job = 0;
  }

  /* Ask; `listener` gets the events of Engine.answer, or a failure. The question before this one
     is given up, and its listener hears no more. */
  ask(question, listener) {
    this.job += 1;
    this.listener = listener;
    this.thread.postMessage({job: this.job, question});
  }

  /* What the thread does. Between two events it looks whether something else has been asked. */
  static serve = () => {
    let engine, current;
    onmessage = async ({data}) => {
      if (!engine) {
        engine = new Playground.Engine(data);
        return;
      }
      const {job, question} = data;
      current = job;
      try {
        for (const event of engine.answer(question)) {
          postMessage({job, event});
          await new Promise(resolve => setTimeout(resolve));
          if (job !== current) return;
        }
      } catch (error) {
        postMessage({job, event: {kind: "failure", text: error.message}});
      }
    };
  };
};
