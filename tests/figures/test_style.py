"""One style serves a light page and a dark one."""

import re

import pandas as pd

from rmutils.book.chapters.masking_sweep.plots import by_length
from rmutils.book.figures import use_style
from rmutils.book.figures.style import DARK_PAPER, MODEL_COLOURS, new_axes, to_svg

COLOUR = re.compile(r"(?:fill|stroke): (#[0-9a-f]{6})")


def contrast(a: str, b: str) -> float:
    """Of two colours, as the Web Content Accessibility Guidelines define it."""
    def luminance(colour):
        parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def in_the_dark(picture: str) -> dict[str, str]:
    """Each colour that is drawn with -> what the picture's own rules make of it."""
    rules, drawn = picture.split("</style>", 1)
    assert "@media (prefers-color-scheme: dark)" in rules
    changed = dict(re.findall(r'\[style\*="stroke: (#\w+)"\] { stroke: (#\w+)', rules))
    assert changed == dict(re.findall(r'\[style\*="fill: (#\w+)"\] { fill: (#\w+)', rules))
    return {colour: changed.get(colour, colour) for colour in COLOUR.findall(drawn)}


def test_lines_can_be_seen_and_text_can_be_read_in_both_modes():
    use_style()
    table = pd.DataFrame({"length": [256, 512], "value": 0.5, "low": 0.4, "high": 0.6})
    seen = in_the_dark(to_svg(by_length(dict.fromkeys([*MODEL_COLOURS, "other"], table), "y")))
    assert len(seen) >= 7 and "#000000" not in seen
    ground = seen.pop("#ffffff")  # the figure's own, for which there is a rule of its own
    assert ground == "#ffffff" and all(contrast(c, DARK_PAPER) >= 3 for c in seen.values())
    figure, axes = new_axes()
    axes.text(0.5, 0.5, "Some text")
    ink = in_the_dark(to_svg(figure))
    ink.pop("#ffffff")
    assert all(contrast(light, "#ffffff") >= 7 and contrast(dark, DARK_PAPER) >= 7
               for light, dark in ink.items())


def test_the_ground_is_the_first_shape():
    """The rule for it names that shape; no other shape may be white and as large."""
    figure, axes = new_axes()
    axes.plot([0, 1])
    picture = to_svg(figure)
    assert re.search(rf"#patch_1 > path {{ fill: {DARK_PAPER} !important }}", picture)
    ground = re.search(r'<g id="patch_1">\s*<path d="([^"]*)" style="fill: #ffffff"', picture)
    width, height = re.search(r'viewBox="0 0 (\S+) (\S+)"', picture).groups()
    assert re.findall(r"[\d.]+", ground[1])[:3:2] == ["0", width]
    assert COLOUR.findall(picture.split("</style>", 1)[1]).count("#ffffff") == 1
