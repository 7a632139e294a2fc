"use strict";

/* Paper is light: a page in dark mode is printed as in light mode. */
{
  const root = document.documentElement;
  let mode = null;
  addEventListener("beforeprint", () => {
    mode = root.dataset.theme;
    root.dataset.theme = "light";
  });
  addEventListener("afterprint", () => { root.dataset.theme = mode; });
}
