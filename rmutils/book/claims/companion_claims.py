"""Claims of the companion texts, each beside what was found here."""

from collections.abc import Iterator

import pandas as pd

from rmutils.book.chapters.ms_poe import findings as ms_poe  # noqa: F401
from rmutils.book.chapters.ms_poe.experiment import AUTHORS, ONE, REVERSED, YARN
from rmutils.book.chapters.olmo3_recipe.findings import ALL, FULL
from rmutils.book.chapters.select_attention import MOST
from rmutils.book.chapters.share_attention.findings import LARGE
from rmutils.book.experiments.run_costs import roofline
from rmutils.book.findings import finding, say

MS_POE, SHARE_SELECT, OLMO3 = ("Ms-PoE, the summary", "Taniguchi and others",
                               "Olmo 3, the summary")
MANY_SCALES, SHARE, SELECT, RECIPE = ("Ms-PoE", "Share-Attention", "Select-Attention",
                                      "Olmo 3's recipe")
MODELS = (("qwen", "qwen3"), ("llama", "llama"), ("olmo", "olmo3"))


def companion_claims() -> pd.DataFrame:
    """Compare claims of the companion texts with what is stored; nothing is computed."""
    rows = [(MS_POE, *row) for row in _ms_poe()]
    rows += [(SHARE_SELECT, *row) for row in _share_select()]
    rows += [(OLMO3, *row) for row in _olmo3()]
    found = pd.DataFrame(rows, columns=["text", "place", "claim", "page", "here"])
    found["here"] = found["here"].str.replace(r"[*`]", "", regex=True)
    return found


def _ms_poe() -> Iterator[tuple]:
    gain = {model: finding("middle-gain", f"tiny-{model}") for model in ("qwen3", "llama", "olmo3")}
    turned, one, yarn = (finding("middle-gain", "tiny-qwen3", name)
                         for name in (REVERSED, ONE, YARN))
    yield ("背景と動機 (background and motivation)", "The decay of rotary positions is one cause "
           "of the loss in the middle", MANY_SCALES,
           say("It could not be tested. Models trained on answers at the ends find {dip!s} points "
               "less in the middle than at the ends; those trained on answers anywhere lose "
               "{loss!s} points of the middle in texts of twice their length.",
               expect="undecided", dip=finding("two-causes", "dip of A"),
               loss=finding("two-causes", "loss of B")).data)
    yield ("Needle-in-a-Haystack", "Beyond the trained length the middle gains 14 points",
           MANY_SCALES,
           say("Ratios of 1 to 1.5, our own setting, change the middle by {qwen3!s} points in "
               "tiny-qwen3, {llama!s} in tiny-llama and {olmo3!s} in tiny-olmo3, which could not "
               "gain 14. In tiny-qwen3, one ratio for all heads gains {one!s}, the reversed order "
               "{turned!s} and YaRN {yarn!s}. The authors' ratios cost tiny-llama {authors!s}.",
               expect={"llama": "undecided", "olmo3": "undecided", "qwen3": "shown"}, **gain,
               one=one, turned=turned, yarn=yarn,
               authors=-finding("middle-gain", "tiny-llama", AUTHORS)).data)
    yield ("マルチスケールの鍵 (the key to many scales)", "One ratio for all heads destroys "
           "what they know of neighbours", MANY_SCALES,
           say("Perplexity of short texts under many ratios, minus one of their mean: {qwen3!s} % "
               "in tiny-qwen3, {llama!s} % in tiny-llama, {olmo3!s} % in tiny-olmo3. In "
               "smollm2-135m, one ratio costs {large!s} % more than many.",
               expect={"large": "shown"}, large=finding("price-one-large"),
               **{model: finding("price-many-minus-one", f"tiny-{model}") for model in gain}).data)


def _share_select() -> Iterator[tuple]:
    yield ("Sections 3.1 and 4.1", "Heads of a layer that look alike can share their weights",
           SHARE,
           say("With 69.1 % of the heads computing, alike heads that share find more needles than "
               "random ones of the same layers: {smol!s} points in smollm2-135m, {llama!s} in "
               "tiny-llama, {qwen!s} in tiny-qwen3 and {olmo!s} in tiny-olmo3.",
               smol=finding("alike-lead", LARGE),
               **{name: finding("alike-lead", f"tiny-{model}") for name, model in MODELS}).data)
    yield ("Section 5, Figure 6", "Sharing in one of layers 0 to 14 costs accuracy, in one of "
           "15 to 31 little", SHARE,
           say("In smollm2-135m, sharing in one layer of the first half costs {first!s} points of "
               "the needles on average ({rest!s} without layer 0), in one of the second half "
               "{second!s}; three needles are no test.",
               first=-finding("one-layer", "first half"),
               rest=-finding("one-layer", "first half", "needles", (0,)),
               second=-finding("one-layer", "second half")).data)
    yield ("Section 3.2, Figures 3 and 4", "Later layers agree on tokens more than early ones; "
           "over time the tokens change", SELECT, say(
               "In smollm2-135m the rank correlation of two later layers is not detectably higher: "
               "by {agree!s}. Of the tokens that a step chooses, {stay!s} % are chosen 64 steps "
               "later, too.", expect={"agree": "undecided"},
               agree=finding("later-layers-agree"), stay=finding("tokens-stay", 64)).data)
    yield ("Sections 3.2 and 4.2", "Choosing at each step keeps what choosing once, from the "
           "prompt, misses", SELECT, say(
               "In smollm2-135m, steps choose {next!s} % of the needle's tokens when they copy "
               "them, the prompt's last token {prompt!s}. Where the other tokens are really "
               "hidden, behind layer 1, the needles found fall by {qwen!s} points in tiny-qwen3, "
               "{llama!s} in tiny-llama and {olmo!s} in tiny-olmo3.",
               next=finding("needle-chosen", "next", MOST),
               prompt=finding("needle-chosen", "prompt", MOST), more=finding("steps-beyond-prompt"),
               **{name: finding("needles-lost-selecting", f"tiny-{model}")
                  for name, model in MODELS}).data)
    table = roofline([8_000], [0.1])
    yield ("Section 4.2", "The cache is half", SELECT, "With the hidden states that have to be "
           f"kept, {table['held_share'].iloc[0]:.0%} of it is left for Llama 3.1 8B; counted.")


def _olmo3() -> Iterator[tuple]:
    yield ("Section 3.3, Figure 13a", "YaRN on the full layers alone does best", RECIPE, say(
        "On all layers a token costs {loss:plain} nats more {loss:ci}, in one fine-tune of each; "
        "seeds of one recipe differ by {span:plain}. {facts:plain} points fewer facts are found "
        "{facts:ci}.", expect={"loss": "shown", "facts": "undecided"},
        loss=finding("loss-beside-yarn", ALL), facts=-finding("facts-beside-yarn", ALL),
        span=finding("seeds-differ")).data)
    yield ("Section 7.2, Figure 13e", "Scores rise with the tokens of the extension", RECIPE, say(
        "The loss falls by {loss:plain} nats per token {loss:ci}, in one fine-tune; facts found "
        "change by {facts:plain} points {facts:ci}.",
        expect={"loss": "shown", "facts": "undecided"}, loss=-finding("loss-of-tokens"),
        facts=finding("facts-gained", FULL)).data)
    yield ("Sections 5.4 and 6, Figures 13c and 13d", "CWE and REX in the texts help, and so do "
           "best-fit packing and masks between documents", RECIPE, say(
               "A token costs {natural:plain} nats more without CWE and REX {natural:ci}, "
               "{rex:plain} without REX {rex:ci}, {split:plain} without best fit {split:ci}, "
               "{masks:plain} without masks {masks:ci}. No part shows in the facts found.",
               natural=finding("part-loss", "natural"), rex=finding("part-loss", "no-rex"),
               split=finding("part-loss", "split"), masks=finding("part-loss", "unmasked")).data)
