"use strict";

/* Fill a list with a row for each [text, share]: the longer its bar, the larger the share. */
(globalThis.Playground ??= {}).bars = function bars(list, rows) {
  list.replaceChildren(...rows.map(([text, share]) => {
    const row = document.createElement("li");
    row.textContent = `${text} ${Playground.words.percent(share)}`;
    row.style.setProperty("--share", share.toFixed(3));
    return row;
  }));
};
