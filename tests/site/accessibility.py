"""What keeps people with a screen reader, with a keyboard alone or with weak eyes from a page."""

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

AXE = Axe()
QUICK = {"resultTypes": ["violations"], "preload": False, "iframes": False}
"""Without preload: axe itself would ask for the style sheets once more."""
COLOURS = ["color-contrast", "link-in-text-block"]
STANDARDS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
"""Axe's other rules are hardly ever serious; together they take a quarter of its time."""
ELSEWHERE = [*COLOURS, "css-orientation-lock", "scrollable-region-focusable"]
"""Not asked by axe: colours are looked at by `faint`, boxes that scroll by `OUT_OF_REACH`; how a
page turns cannot be judged without preload."""
FRAME = [[".bd-sidebar-primary"], [".bd-header"], ["footer"]]
"""What all pages share."""
NEW = "data-new-look"
MARK = """([name, known]) => {
    const seen = new Set(known), kinds = new Set();
    const ground = e => {
        for (; e; e = e.parentElement) {
            const colour = getComputedStyle(e).backgroundColor;
            if (colour !== 'rgba(0, 0, 0, 0)') return colour;
        }
    };
    for (const e of document.body.querySelectorAll('*')) {
        if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
        let kind = e.getAttribute('style') || '';
        for (let up = e, i = 0; up && i < 6; up = up.parentElement, i++) {
            kind += `${up.tagName}.${up.className} `;
        }
        if (kinds.has(kind)) continue;  // styles take long to compute
        kinds.add(kind);
        if (!e.checkVisibility({visibilityProperty: true})) continue;
        const s = getComputedStyle(e);
        const link = e.closest('a') ? s.textDecorationLine + getComputedStyle(
            e.closest('a').parentElement).color : '';
        const size = parseFloat(s.fontSize);  // in pixels: large text may be fainter
        const large = size >= 24 || (size >= 18.66 && s.fontWeight >= 700);
        const look = [s.color, s.opacity, large, ground(e), link].join();
        if (!seen.has(look)) e.setAttribute(name, '');
        seen.add(look);
    }
    return [...seen];
}"""
HEADINGS = """() => [...document.querySelectorAll('main :is(h1, h2, h3, h4, h5, h6)')]
    .filter(e => e.checkVisibility()).map(e => [Number(e.tagName[1]), e.textContent])"""
OUT_OF_REACH = """() => [...document.querySelectorAll('main *, .bd-sidebar-primary')].filter(e => {
    const s = getComputedStyle(e);
    const scrolls = (/auto|scroll/.test(s.overflowX) && e.scrollWidth > e.clientWidth + 1)
        || (/auto|scroll/.test(s.overflowY) && e.scrollHeight > e.clientHeight + 1);
    return scrolls && e.clientHeight && e.tabIndex < 0
        && ![...e.querySelectorAll('a[href], button, input, summary, [tabindex="0"]')]
            .some(inner => inner.checkVisibility());
}).map(e => `${e.tagName}.${e.className}`.slice(0, 80))"""
"""Boxes that scroll and that no key can scroll: neither they nor anything in them has a focus."""


def barriers(page: Page, *, frame: bool = True) -> list[str]:
    """All but colours: by axe, of headings, of boxes that scroll; `frame`: of what pages share."""
    off = dict.fromkeys([*ELSEWHERE, *["bypass"] * (not frame)], {"enabled": False})
    found = _axe(page, {"runOnly": STANDARDS, "rules": {**off, "tabindex": {"enabled": True}}},
                 None if frame else {"exclude": FRAME})
    headings = page.evaluate(HEADINGS)
    if [level for level, _ in headings].count(1) != 1:
        found.append("headings: there must be one of the first level")
    found += [f"headings: {text!r} skips a level" for (above, _), (level, text)
              in zip(headings, headings[1:], strict=False) if level > above + 1]
    return found + [f"no key scrolls {name}" for name in page.evaluate(OUT_OF_REACH)]


def faint(page: Page, known: set[str]) -> list[str]:
    """Faint text, and links that only their colour tells from text, by axe: one piece of each look
    that is not `known` from pages before, since all of them would take minutes."""
    looks = page.evaluate(MARK, [NEW, sorted(known)])
    if len(looks) == len(known):
        return []
    known.update(looks)
    return _axe(page, {"runOnly": COLOURS}, {"include": [[f"[{NEW}]"]]})


def _axe(page: Page, options: dict, context: dict | None = None) -> list[str]:
    if page.evaluate("() => !globalThis.axe"):  # half a megabyte
        page.evaluate(AXE.axe_script)
    found = page.evaluate("async given => (await axe.run(...given)).violations",
                          [*[context] * bool(context), QUICK | options])
    return [f"{v['id']}: {node['target']} {node['html'][:120]}" for v in found
            if v["impact"] in ("serious", "critical") for node in v["nodes"][:3]]
