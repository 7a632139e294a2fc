/* Filters above the list of claims (verdict, model, section), and a search field in each long table. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  const LONG = 12;
  function filtered(rows, what) {
    const bar = Object.assign(document.createElement("p"), { className: "rm-filters" });
    const told = Object.assign(document.createElement("output"), { className: "rm-told" });
    const wanted = {};
    function choose(name, test) {
      wanted[name] = test;
      for (const row of rows) row.hidden = !Object.values(wanted).every((fits) => fits(row));
      told.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} ${what}`;
    }
    function add(name, field, event, test) {
      const label = document.createElement("label");
      field.addEventListener(event, () => choose(name, (row) => test(row, field.value)));
      label.append(`${name} `, field);
      bar.append(label, told);
      choose(name, () => true);
    }
    return { bar, add };
  }
  for (const list of document.querySelectorAll(".rm-claims")) {
    const rows = [...list.querySelectorAll("[data-verdict]")];
    if (!rows.length) continue;
    const { bar, add } = filtered(rows, "claims");
    for (const name of ["verdict", "model", "section"]) {
      const select = document.createElement("select");
      const values = [...new Set(rows.flatMap((row) => row.dataset[name].split("|")))];
      select.add(new Option(`every ${name}`, ""));
      for (const value of values.filter(Boolean)) select.add(new Option(value, value));
      add(name, select, "change", (row, value) =>
        !value || row.dataset[name].split("|").includes(value));
    }
    list.querySelector("summary").after(bar);
  }
  for (const fold of document.querySelectorAll("details.rm-fold:not(.rm-tables, .rm-claims > details)")) {
    const rows = [...fold.querySelectorAll("tbody tr:has(td)")];
    if (rows.length <= LONG) continue;
    const { bar, add } = filtered(rows, "rows");
    const field = Object.assign(document.createElement("input"), { type: "search" });
    add("search", field, "input", (row, words) =>
      words.toLowerCase().split(/\s+/).every((word) => row.textContent.toLowerCase().includes(word)));
    fold.querySelector("summary").after(bar);
  }
});
