"use strict";

/* A group of buttons is one stop of the Tab key; within it, the arrow keys go to the neighbour on
   the screen (at the end of a line to the next button), Home and End to the first and the last. */
(globalThis.Playground ??= {}).moveByKeys = function moveByKeys(group) {
  const directions = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};
  const buttons = () => [...group.querySelectorAll("button")];
  const centre = button => {
    const box = button.getBoundingClientRect();
    return [box.left + box.width / 2, box.top + box.height / 2];
  };

  const neighbour = (from, [right, down]) => {
    const [x, y] = centre(from);
    let nearest = null, least = Infinity;
    for (const button of buttons()) {
      const dx = centre(button)[0] - x, dy = centre(button)[1] - y;
      const ahead = dx * right + dy * down, aside = Math.abs(dx * down) + Math.abs(dy * right);
      if (ahead > 1 && (down || aside < 10) && ahead + 3 * aside < least) {
        [nearest, least] = [button, ahead + 3 * aside];
      }
    }
    const all = buttons(), next = all[all.indexOf(from) + right];
    return nearest ?? (right ? next : null);
  };

  group.addEventListener("keydown", event => {
    const all = buttons();
    const to = event.key === "Home" ? all[0] : event.key === "End" ? all.at(-1)
      : event.key in directions ? neighbour(event.target, directions[event.key]) : null;
    if (event.key in directions || to) event.preventDefault();
    to?.focus();
  });
  group.addEventListener("focusin", event => {
    for (const button of buttons()) button.tabIndex = button === event.target ? 0 : -1;
  });
};
