"use strict";

/* A model in a thread. Its file comes in scripts, which a page may load from a web server and from a
   folder alike, and which the browser keeps. */
(globalThis.Playground ??= {}).LoadedModel = class LoadedModel {
  /* Promises the thread. tell: called with the share that is loaded. Throws an Error that says what
     is missing. */
  static async load(model, tell) {
    const thread = new Playground.Worker(model);
    try {
      for (const [i, {file, at, checksum}] of model.parts.entries()) {
        tell(i / model.parts.length);
        const bytes = await Promise.race([LoadedModel.part(file), thread.ready]);
        // Not two parts at a time in memory.
        await Promise.race([thread.give({file, at, checksum, bytes}), thread.ready]);
      }
      await thread.ready;
    } catch (error) {
      thread.end();
      throw error;
    }
    return thread;
  }

  /* The bytes of one part; its script calls Playground.part with a function that has them in base64
     as a comment. A string would be kept a second time, beside the text of the script. */
  static part(file) {
    return new Promise((resolve, reject) => {
      const script = document.createElement("script");
      Playground.part = (name, holder) => {
        const text = holder.toString();
        try {
          if (name === file) {
            resolve(Playground.Engine.bytes(text.slice(text.indexOf("/*") + 2, text.indexOf("*/"))));
          }
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
