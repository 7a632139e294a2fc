/* Where several versions of the book stand beside each other (`make publish`), a list below the
   search field leads to the same page of another one. Works from disk, too. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const place = document.querySelector(".rm-version");
  const known = window.rmVersions ?? [];
  if (!place || known.length < 2) return;
  const root = new URL(document.documentElement.dataset.content_root, location.href);
  const page = location.pathname.slice(root.pathname.length) || "index.html";
  const list = Object.assign(document.createElement("select"), { className: "form-select" });
  list.setAttribute("aria-label", "Version of the book");
  for (const [name] of known) list.add(new Option(`Version ${name}`, name));
  list.value = place.dataset.version;
  list.addEventListener("change", () => {
    const pages = known.find(([name]) => name === list.value)[1];
    const same = pages.includes(page);
    location.href = new URL(`../${list.value}/${same ? page : "index.html"}`, root).href
      + (same ? location.hash : "");
  });
  place.append(list);
});
