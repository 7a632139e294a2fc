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
  // Figures that scroll on a phone can be moved with the keyboard.
  for (const figure of document.querySelectorAll(".cell_output figure")) {
    if (figure.scrollWidth > figure.clientWidth) figure.tabIndex = 0;
  }
  // Names of models and the like do not break at their hyphens.
  for (const name of document.querySelectorAll(".bd-article :is(:not(pre) > code, .rm-table :is(td, th))")) {
    if (/^[\w.-]{1,24}$/.test(name.textContent.trim())) name.style.whiteSpace = "nowrap";
  }
  const models = /\b(?:tiny-(?:llama|qwen3|olmo3)|smollm2-135m|gemma3-270m|(?:llama|qwen|olmo)[\w.]*(?:-[\w.]+)+)/gi;
  const texts = document.createTreeWalker(document.querySelector(".bd-article") ?? document.body,
    NodeFilter.SHOW_TEXT, (text) => text.parentElement.closest("pre, script, style, svg, code, textarea, option, mjx-container")
      ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT);
  const found = [];
  while (texts.nextNode()) {
    for (const match of texts.currentNode.data.matchAll(models)) {
      found.push([texts.currentNode, match.index, match[0].length]);
    }
  }
  for (const [text, start, length] of found.reverse()) { // the last of a text first: places before it stay
    const range = document.createRange();
    range.setStart(text, start);
    range.setEnd(text, start + length);
    range.surroundContents(Object.assign(document.createElement("span"), {className: "rm-name"}));
  }
});
