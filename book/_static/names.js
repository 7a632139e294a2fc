// The theme's sidebar opens a part with a sign that has no name: screen readers get one here.
document.addEventListener("DOMContentLoaded", () => {
  for (const sign of document.querySelectorAll(".has-children > details > summary")) {
    const part = sign.closest(".has-children").querySelector("a").textContent.trim();
    sign.setAttribute("aria-label", `Pages under ${part}`);
  }
  // A list for screen readers must hold list items; Sphinx's list of references holds entries.
  for (const list of document.querySelectorAll(".citation-list[role=list]")) {
    list.removeAttribute("role");
  }
  // Names of models and the like do not break at their hyphens.
  for (const name of document.querySelectorAll(".bd-article :is(:not(pre) > code, .rm-table :is(td, th))")) {
    if (/^[\w.-]{1,24}$/.test(name.textContent.trim())) name.style.whiteSpace = "nowrap";
  }
});
