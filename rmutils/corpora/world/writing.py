"""Short texts in free words: greetings, notes, stories, advice and poems.

Many answers are right. They must hold a name or the topic, a common word, of the instruction.
"""

from __future__ import annotations

from rmutils.corpora.world import lexicon as words
from rmutils.corpora.world.facts import World, sentence, values
from rmutils.corpora.world.samples import Sample

_GREETINGS = (
    "Hello, {p}! It is good to see you.", "Good morning, {p}! How are you today?",
    "Welcome, {p}! Please come in.", "Hello, {p}! How was the road?",
    "Good evening, {p}! We are glad that you are here.")
_CLOSINGS = (
    "I hope to see you there.", "Please come early.", "Bring your friends.", "We can go together.",
    "Do you want to come with me?")

_OPENINGS = (
    "{adj} {hero} lives near the {spot}.", "There is {adj} {hero} in the house by the {spot}.",
    "Near the {spot} you can see {adj} {hero}.", "This is the story of {adj} {hero}.")
_ADJECTIVES = ("a young", "an old", "a poor", "a clever", "a kind", "a quiet")
_PLOTS = (  # what happens, and what comes of it
    ("One {day} the {hero} finds a {thing} near the {spot}.",
     ("It belongs to a {trade}, and the {hero} gives it back.", "Nobody knows where it came from.",
      "The {hero} hides it under the {spot2}.")),
    ("One {day} the {thing} of the {hero} is gone.",
     ("The {hero} looks for it and finds it near the {spot2}.",
      "A {animal} has carried it to the {spot2}.")),
    ("One evening a {animal} comes to the door.",
     ("The {hero} gives it bread and a warm place.", "The {hero} follows it to the {spot2}.")),
    ("In {month} a {trade} asks the way to the {spot2}.",
     ("The {hero} walks there with the {trade}.", "The {hero} knows the way by heart.")),
    ("One {day} a letter comes from the {spot2}.",
     ("It says that an old friend is sick, and the {hero} goes there at once.",
      "In the letter there is a {thing} for the {hero}.")),
    ("There is a great {show} near the {spot2}.",
     ("The {hero} comes home with a {thing}.", "The {hero} and a {trade} sing all evening.")),
)
_ENDINGS = (
    "In the end all is well.", "The {hero} goes home and sleeps well.",
    "Everyone still speaks of the {hero}.", "After that the {hero} is never alone again.",
    "From that day the {hero} is glad.", "The {hero} never forgets it.")
_STORY = (
    "Tell a story about {a}.", "Write a short story about {a}.", "Tell me a story of {a}.",
    "Write a story of {a}.")

_TWO = {  # the lists of two words, and sentences with both
    ("TRADES", "THINGS"): (
        "The {a} keeps a {b} in the house.", "On {day} the {a} finds a {b} near the {spot}.",
        "A {b} was given to the {a} in {month}.", "The {a} and the {animal} look for the {b}."),
    ("TRADES", "SPOTS"): (
        "The {a} waits near the {b} all day.", "In {month} a {a} came to the {b}.",
        "Every {day} the {a} walks to the {b}.", "There is a {thing} of the {a} near the {b}."),
    ("ANIMALS", "SPOTS"): (
        "A {a} sleeps near the {b}.", "Every {day} the {a} comes to the {b}.",
        "The {trade} found a {a} near the {b}.", "In {month} the {a} lives under the {b}."),
    ("THINGS", "SPOTS"): (
        "The {trade} left a {a} near the {b}.", "On {day} a {a} was found under the {b}.",
        "There is a {a} in front of the {b}.", "The {animal} carried the {a} to the {b}."),
    ("ANIMALS", "THINGS"): (
        "The {a} plays with a {b}.", "A {a} hid the {b} near the {spot}.",
        "The {trade} has a {a} and a {b}.", "On {day} the {a} found a {b}."),
}
_SENTENCE = (
    "Write a sentence with the words {a} and {b}.", "Use {a} and {b} in a sentence.",
    "Make a sentence with {a} and {b}.", "Write a sentence and use the words {a} and {b}.")

_ADVICE = (
    "Give advice to a traveller in {t}.", "A traveller comes in {t}. What do you say?",
    "What do you say to a traveller in {t}?", "Tell a traveller what to do in {t}.")
_WEATHER_ADVICE = {
    "mild": ("bring boots for the long roads", "see the roses in the gardens"),
    "hot": ("walk early in the day", "bring a hat and a bottle of water"),
    "cool": ("bring a coat for the evening", "walk in the forest and look at the leaves"),
    "cold": ("bring a warm coat and boots", "stay near the oven of your house"),
}
_TIPS = (
    "Ask the {trade} for a room.", "Go to the {spot} early.", "Do not sleep near the {spot}.",
    "Ask for {food} in the evening.", "See the {show} on {day}.",
    "Bring a {thing} for the {trade}.", "Beware of the {animal} near the {spot}.")

_POEM = (
    "Write a poem about {t}.", "Write a few lines about {t}.", "Sing me a song about {t}.",
    "Write me a song about {t}.")
_RHYMES = (
    ("the road is long", "we sing a song"), ("the roofs are white", "the lamps are bright"),
    ("the wind is high", "the ravens fly"), ("the rain is slow", "the children go"),
    ("the town is old", "the tale is told"), ("the fields are wide", "we walk outside"),
    ("the bells are near", "the friends are here"), ("the well is deep", "the children sleep"))


def greet(world: World) -> Sample:
    """Say hello to a person."""
    person = world.entity("person")
    wording = world.wording((
        "Say hello to {p}.", "Greet {p}.", "{p} is at the door. Say something kind.",
        "Tell {p} that you are glad.", "Say something kind to {p}."))
    answer = world.random.choice(_GREETINGS)
    return Sample("greet", wording.format(p=person), answer.format(p=person), golds=(person,))


def note(world: World) -> Sample:
    """Write a few lines from one person to another about an event."""
    a, b, event = (world.entity(kind) for kind in ("person", "person", "event"))
    relations = world.random.sample(("month", "venue", "prize"), world.random.randint(1, 2))
    facts = [world.fact(event, relation) for relation in relations]
    told = tuple(world.tell(fact) for fact in facts)
    wording = world.wording((
        "Write a note from {a} to {b} about {e}.", "{a} wants to tell {b} about {e}. Write a note.",
        "Help {a} to write to {b} about {e}.", "Write to {b} about {e}. The note is from {a}."))
    known = " ".join(fact.answer for fact in facts)
    closing = world.random.choice(_CLOSINGS)
    return Sample("note", f"{wording.format(a=a, b=b, e=event)} {' '.join(told)}",
                  f"Dear {b}, do you know {event}? {known} {closing} Your friend {a}",
                  golds=(a, b, event.removeprefix("the "), *(f.value for f in facts)), support=told)


def story(world: World) -> Sample:
    """A story of a trade, an animal or a season."""
    heroes = [*words.TRADES, *words.ANIMALS]
    topic = hero = world.random.choice([*heroes, *(list(words.SEASONS) * 3)])
    lines = [world.random.choice(_OPENINGS)]
    if topic in words.SEASONS:
        hero = world.random.choice(heroes)
        lines.insert(0, f"It is {topic}, and {words.SEASONS[topic][0]}.")
    elif world.random.random() < 0.7:
        does = {**words.TRADES, **words.ANIMALS}[topic][0]
        lines.append(world.random.choice((f"Every day the {{hero}} {does}.",
                                          f"No one {does} like this {{hero}}.")))
    event, ways = world.random.choice(_PLOTS)
    lines += [event, world.random.choice(ways)]
    if world.random.random() < 0.7 or len(lines) < 4:
        lines.append(world.random.choice(_ENDINGS))
    slots = {**_slots(world, avoid=hero), "hero": hero, "adj": world.random.choice(_ADJECTIVES)}
    wording = world.wording(_STORY).format(a=topic if topic in words.SEASONS else f"a {topic}")
    return _written("story", wording, lines, slots, topic)


def two_words(world: World) -> Sample:
    """A sentence with two common words."""
    lists, sentences = world.random.choice(list(_TWO.items()))
    a, b = (world.random.choice(list(getattr(words, name))) for name in lists)
    slots = {**_slots(world, avoid=a), "a": a, "b": b}
    wording = world.wording(_SENTENCE).format(a=a, b=b)
    return _written("two_words", wording, [world.random.choice(sentences)], slots, a, b)


def advice(world: World) -> Sample:
    """Advice to a traveller in a season or a month."""
    season = world.random.choice(list(words.SEASONS))
    topic = world.random.choice([season, *words.MONTHS_OF[season]])
    weather = words.SEASONS[season][1]
    tip = world.random.choice(_WEATHER_ADVICE[weather])
    lines = [f"In {topic} it is {weather}, so {tip}.",
             *world.random.sample(_TIPS, world.random.randint(1, 2))]
    slots = {**_slots(world), "food": world.random.choice(values("food", world.split))}
    return _written("advice", world.wording(_ADVICE).format(t=topic), lines, slots, topic)


def poem(world: World) -> Sample:
    """Four lines about a month, of which the second and the fourth rhyme."""
    season = world.random.choice(list(words.SEASONS))
    month = world.random.choice(words.MONTHS_OF[season])
    animal = world.random.choice(list(words.ANIMALS))
    event, weather = words.SEASONS[season]
    one, two = world.random.choice(_RHYMES)
    third = world.random.choice((f"the {animal} {words.ANIMALS[animal][0]},",
                                 f"the days are {weather} and", "in the {spot} by the {spot2}"))
    first = world.random.choice((f"In {month} {event},", f"{month} has come and {event},",
                                 f"This is {month}, and {event},"))
    lines = f"{first}\n{one},\n{third}\n{two}."
    return _written("poem", world.wording(_POEM).format(t=month), [lines], _slots(world), month)


def _slots(world: World, avoid: str = "") -> dict[str, str]:
    """A word of each list, none of them `avoid`."""
    spot, spot2 = world.random.sample(words.SPOTS, 2)
    pools = {"trade": words.TRADES, "animal": words.ANIMALS, "thing": words.THINGS,
             "show": words.SHOWS, "day": words.DAYS, "month": words.MONTHS}
    return {"spot": spot, "spot2": spot2,
            **{name: world.random.choice([w for w in pool if w != avoid])
               for name, pool in pools.items()}}


def _written(
    kind: str, prompt: str, lines: list[str], slots: dict[str, str], *topic: str
) -> Sample:
    text = " ".join(sentence(line.format(**slots)) for line in lines)
    return Sample(kind, sentence(prompt), text, golds=topic)
