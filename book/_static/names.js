// The theme's sidebar opens a part with a sign that has no name: screen readers get one here.
document.addEventListener("DOMContentLoaded", () => {
  for (const sign of document.querySelectorAll(".has-children > details > summary")) {
    const part = sign.closest(".has-children").querySelector("a").textContent.trim();
    sign.setAttribute("aria-label", `Pages under ${part}`);
  }
});
