"""Tasks that take the whole text: to see what its examples have in common, and to sum it up."""

from __future__ import annotations

from collections.abc import Iterator

from rmutils.corpora.world.documents import paragraphs
from rmutils.corpora.world.facts import World
from rmutils.corpora.world.fitting import Count, Piece, fit, weave
from rmutils.corpora.world.lookups import told
from rmutils.corpora.world.names import names, of_split
from rmutils.corpora.world.relations import OF_KIND, RELATIONS
from rmutils.corpora.world.samples import Sample

CLASSIFY = (  # before and after the examples; the last is held out
    ("Here are some texts with labels.\n\n", "\n\nWhich label does this text have? Text: {q}"),
    ("Read the texts and their labels.\n\n", "\n\nName the label of this text: {q}"),
    ("", "\n\nText: {q} What is its label?"),
    ("Here are texts with their labels.\n\n", "\n\nText: {q} Which label does it have?"),
)
SUMMARY = (
    ("Read the text.\n\n", "\n\nSum up what the text says about {s}."),
    ("Here is a text.\n\n", "\n\nSummarize what the text says about {s}."),
    ("", "\n\nSay in short what the text says about {s}."),
    ("Read this text.\n\n", "\n\nWhat does the text say about {s}? Summarize it."),
)


def labels(world: World, number: int) -> list[str]:
    """Numbers or made-up words that mean nothing by themselves."""
    choices = of_split([str(n) for n in range(10, 100)], world.split) \
        if world.random.random() < 0.5 else names("title", world.split)
    return world.random.sample(choices, number)


def classify(world: World, length: int, count: Count) -> Sample:
    """The label of a text by the examples of others, classed by relation or by kind of subject.

    `support` holds all examples of the right class. The labels are drawn anew for each sample, so
    that nothing but the examples tells them.
    """
    number = world.random.randint(2, max(2, min(6, length // 60)))
    if world.random.random() < 0.5:
        classes = [[name] for name in world.random.sample(list(RELATIONS), number)]
    else:
        kinds = world.random.sample(list(OF_KIND), min(number, len(OF_KIND)))
        classes = [[relation.name for relation in OF_KIND[kind]] for kind in kinds]
    label_of = dict(zip(labels(world, len(classes)), classes, strict=True))

    def text(label: str) -> str:
        return world.tell(world.new_fact(world.random.choice(label_of[label])))

    def example(label: str) -> str:
        return f"Text: {text(label)} Label: {label}"

    def examples() -> Iterator[Piece]:
        while True:
            try:
                line = example(world.random.choice(list(label_of)))
            except LookupError:  # all names are taken
                return
            yield [line]

    shown = world.random.sample([[example(label)] for label in label_of], len(label_of))
    right = world.random.choice(list(label_of))
    before, after = world.wording(CLASSIFY)
    asked = text(right)

    def build(pieces: list[Piece]) -> Sample:
        lines = [line for line, in weave(world, shown, pieces)]
        return Sample("classify", before, f"Label: {right}", "\n".join(lines),
                      after.format(q=asked), (right,),
                      tuple(line for line in lines if line.endswith(f" {right}")))

    return fit(build, examples(), length, count, "\n")


def summary(world: World, length: int, count: Count) -> Sample:
    """What a text says about one entity, among sentences about others and about nothing.

    The key points are all the facts about the entity, in the order of the text.
    """
    kind = world.random.choice(list(OF_KIND))
    subject = world.entity(kind)
    number = world.random.randint(3, max(3, min(6, length // 50)))
    relations = world.random.sample(OF_KIND[kind], min(number, len(OF_KIND[kind])))
    facts = [world.fact(subject, relation.name) for relation in relations]
    support = tuple(world.tell(fact) for fact in facts)
    before, after = world.wording(SUMMARY)
    points = tuple(fact.answer for fact in facts)

    def build(pieces: list[Piece]) -> Sample:
        text = weave(world, [[line] for line in support], pieces)
        return Sample("summary", before, " ".join(points),
                      paragraphs([line for piece in text for line in piece]),
                      after.format(s=subject), tuple(fact.value for fact in facts), support,
                      key_points=points)

    return fit(build, told(world, about_not=subject), length, count)
