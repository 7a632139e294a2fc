"use strict";

/* A model in two threads, one for each answer, so that both are written at once and no thread waits
   for the other. Its file comes in scripts, which a page may load from a web server and from a
   folder alike, and which the browser keeps. */
(globalThis.Playground ??= {}).LoadedModel = class LoadedModel {
  /* tell: called with the share that is loaded. Throws an Error that says what is missing. */
  static async load(model, tell) {
    const threads = {whole: new Playground.Worker(model), masked: new Playground.Worker(model)};
    const ready = Promise.all(Object.values(threads).map(thread => thread.ready));
    try {
      for (const [i, part] of model.parts.entries()) {
        tell(i / model.parts.length);
        const bytes = await Promise.race([LoadedModel.part(part.file), ready]);
        const taken = [threads.whole.give({...part, bytes: bytes.slice()}),
                       threads.masked.give({...part, bytes})];
        await Promise.race([Promise.all(taken), ready]);  // not two parts at a time in memory
      }
      await ready;
    } catch (error) {
      for (const thread of Object.values(threads)) thread.end();
      throw error;
    }
    return threads;
  }

  /* The bytes of one part; its script calls Playground.part. */
  static part(file) {
    return new Promise((resolve, reject) => {
      const script = document.createElement("script");
      Playground.part = (name, base64) => {
        try {
          if (name === file) resolve(Playground.Engine.bytes(base64));
        } catch {
          reject(new Error(`The file ${file} is damaged. Copy it again, or build the book again.`));
        }
      };
      const unread = () => reject(new Error(`The file ${file} is missing or damaged. `
        + "Copy it again, or build the book again."));
      script.onerror = unread;
      script.onload = () => {
        unread();  // nothing, if the script has called
        script.remove();
      };
      script.src = `playground/${file}`;
      document.head.append(script);
    });
  }
};
