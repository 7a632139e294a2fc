/* Filters above the list of claims: by verdict, model and section. */
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  for (const list of document.querySelectorAll(".rm-claims")) {
    const rows = [...list.querySelectorAll("li[data-verdict]")];
    const bar = Object.assign(document.createElement("p"), { className: "rm-filters" });
    const told = Object.assign(document.createElement("output"), { className: "rm-told" });
    const chosen = {};
    function apply() {
      for (const row of rows)
        row.hidden = Object.entries(chosen).some(([name, value]) =>
          value && !row.dataset[name].split("|").includes(value));
      told.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} claims`;
    }
    for (const name of ["verdict", "model", "section"]) {
      const label = document.createElement("label");
      const select = document.createElement("select");
      const values = [...new Set(rows.flatMap((row) => row.dataset[name].split("|")))];
      select.add(new Option(`every ${name}`, ""));
      for (const value of values.filter(Boolean)) select.add(new Option(value, value));
      select.addEventListener("change", () => { chosen[name] = select.value; apply(); });
      label.append(`${name} `, select);
      bar.append(label);
    }
    bar.append(told);
    list.prepend(bar);
    apply();
  }
});
