"""Short instructions whose answer is copied, turned or looked up from the instruction itself."""

from __future__ import annotations

from collections.abc import Sequence

from rmutils.corpora.world import lexicon as words
from rmutils.corpora.world.facts import Fact, World, sentence, values
from rmutils.corpora.world.lexicon import HOPS, OF_KIND, table
from rmutils.corpora.world.samples import Sample

_WORDS = [*words.THINGS, *words.CROPS, *words.DISHES, *words.ANIMALS, *words.SPOTS,
          *words.ADJECTIVES]
_TABLE = table("instructions")


def repeat(world: World) -> Sample:
    """Say a sentence, two sentences, words or a list of phrases again."""
    shape = world.random.choice(("fact", "facts", "filler", "words", "list"))
    text = {
        "fact": lambda: world.tell(world.new_fact()),
        "facts": lambda: " ".join(world.tell(world.new_fact()) for _ in range(2)),
        "filler": lambda: f"{world.filler()} {world.tell(world.new_fact())}",
        "words": lambda: " ".join(world.random.sample(_WORDS, world.random.randint(3, 9))),
        "list": lambda: ", ".join(_items(world, world.random.randint(2, 5))),
    }[shape]()
    wording = world.wording(_TABLE["repeat"])
    return Sample("repeat", wording.format(x=text), text, golds=(text,))


def reverse(world: World) -> Sample:
    """Put a list in reverse order."""
    items = _items(world, world.random.randint(2, 4))
    wording = world.wording(_TABLE["reverse"])
    answer = ", ".join(reversed(items))
    return Sample("reverse", wording.format(x=", ".join(items)), answer, golds=(answer,))


def quote(world: World) -> Sample:
    """Say what one of a few persons said."""
    said, say = world.wording(_TABLE["say"])
    speakers = [world.entity("person") for _ in range(world.random.randint(1, 3))]
    told = [f'{s} {said}: "{world.tell(world.new_fact())}"' for s in speakers]
    i = world.random.randrange(len(told))
    return Sample("quote", _given(world, told, f"What did {speakers[i]} {say}?"), told[i],
                  golds=(told[i].split('"')[1],), support=(told[i],))


def look_up(world: World) -> Sample:
    """Answer a question about one of one to four facts."""
    fact = world.new_fact()
    facts = [fact, *_distractors(world, fact, world.random.randint(0, 3))]
    return _looked_up(world, "look_up", facts, 1, world.ask(fact), fact.value)


def chain(world: World) -> Sample:
    """Answer a question over two facts, the value of the first being the subject of the second."""
    one, two = world.random.choice(HOPS)
    first = world.new_fact(one.name)
    second = world.fact(first.value, two.name)
    facts = [first, second]
    for spec in world.random.sample((one, two), world.random.randint(0, 2)):
        facts.append(world.fact(world.entity(spec.subject), spec.name))
    noun = two.noun.format(s="the " + one.noun.format(s=first.subject))
    question = world.wording(_TABLE["chain"]).format(
        w="Who" if two.value == "person" else "What", n=noun)
    return _looked_up(world, "chain", facts, 2, question, second.value)


def who(world: World) -> Sample:
    """Say of which person something is true."""
    relation = world.random.choice(OF_KIND["person"]).name
    facts: list[Fact] = []
    count = world.random.randint(2, 3)
    while len(facts) < count:
        fact = world.fact(world.entity("person"), relation)
        if fact.value not in [f.value for f in facts]:
            facts.append(fact)
    fact = facts[0]
    a, b = world.random.sample([f.subject for f in facts[:2]], 2)
    does = fact.answer.removeprefix(fact.subject)[1:-1]
    question = world.wording(_TABLE["who"]).format(does=does, a=a, b=b)
    return _looked_up(world, "who", facts, 1, question, fact.subject)


def complete(world: World) -> Sample:
    """Finish a sentence seen before."""
    fact = world.new_fact()
    facts = [fact, *_distractors(world, fact, world.random.randint(0, 2))]
    told = [world.tell(f) for f in facts]
    start = told[0][: told[0].rindex(fact.value)].strip()
    question = world.wording(_TABLE["complete"]).format(x=start)
    answer = told[0]
    world.random.shuffle(told)
    return Sample("complete", _given(world, told, question), answer,
                  golds=(fact.value,), support=(answer,), thinking=fact.answer)


def turn(world: World) -> Sample:
    """Say a sentence with its last name first."""
    fact = world.new_fact(world.random.choice(list(_TABLE["turned"])))
    told = world.tell(fact)
    wording = world.wording(_TABLE["turn"])
    answer = sentence(_TABLE["turned"][fact.relation].format(s=fact.subject, v=fact.value))
    return Sample("turn", wording.format(t=told, v=fact.value), answer,
                  golds=(fact.value, _bare(fact.subject)), support=(told,))


def report(world: World) -> Sample:
    """Say all that is known about one subject, and nothing about others."""
    kind = world.random.choice(list(OF_KIND))
    subject, other = world.entity(kind), world.entity(kind)
    specs = world.random.sample(OF_KIND[kind], world.random.randint(2, 3))
    facts = [world.fact(subject, spec.name) for spec in specs]
    others = [world.fact(other, spec.name) for spec in specs[: world.random.randint(0, 2)]]
    told = {fact: world.tell(fact) for fact in facts + others}
    order = world.random.sample(list(told), len(told))
    chosen = [fact for fact in order if fact.subject == subject]
    answer = " ".join(fact.answer for fact in chosen)
    question = world.wording(_TABLE["about"]).format(s=subject)
    return Sample("report", _given(world, [told[fact] for fact in order], question), answer,
                  golds=tuple(fact.value for fact in chosen),
                  support=tuple(told[fact] for fact in chosen), thinking=answer)


def _items(world: World, count: int) -> list[str]:
    """Different names or phrases of one kind."""
    kind = world.random.choice(("person", "place", "food", "keepsake", "pet", "product"))
    if kind in OF_KIND:
        return [world.entity(kind) for _ in range(count)]
    return world.random.sample(values(kind, world.split), count)


def _distractors(world: World, fact: Fact, count: int) -> list[Fact]:
    """Facts that share the relation or the subject with a fact."""
    facts = []
    others = [spec.name for spec in OF_KIND[fact.spec.subject] if spec != fact.spec]
    world.random.shuffle(others)
    for _ in range(count):
        if others and world.random.random() < 0.5:
            facts.append(world.fact(fact.subject, others.pop()))
        else:
            facts.append(world.fact(world.entity(fact.spec.subject), fact.relation))
    return facts


def _given(world: World, told: Sequence[str], question: str) -> str:
    """An instruction of given sentences and a question about them."""
    return world.wording(_TABLE["given"]).format(facts=" ".join(told), question=question)


def _looked_up(
    world: World, kind: str, facts: Sequence[Fact], needed: int, question: str, gold: str
) -> Sample:
    """A question about the first `needed` facts, told with the others in a random order."""
    told = [world.tell(fact) for fact in facts]
    answers = [fact.answer for fact in facts[:needed]]
    order = world.random.sample(told, len(told))
    return Sample(kind, _given(world, order, question), answers[-1], golds=(gold,),
                  support=tuple(told[:needed]), thinking=" ".join(answers))


def _bare(name: str) -> str:
    """A name without its article."""
    return name.removeprefix("the ")
