"""The common words of the world, and what everybody in it knows.

Invented names, divided for good into those for training and those held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Literal
from zlib import crc32

TRADES = {  # trade: (does what, with what, where)
    "baker": ("bakes bread", "an oven", "a bakery"),
    "smith": ("forges iron", "a hammer", "a smithy"),
    "weaver": ("weaves cloth", "a loom", "a workshop"),
    "potter": ("shapes clay", "a wheel", "a pottery"),
    "miller": ("grinds grain", "a stone", "a mill"),
    "farmer": ("grows wheat", "a plough", "a farm"),
    "fisher": ("catches fish", "a net", "a harbour"),
    "carpenter": ("builds tables", "a saw", "a workshop"),
    "tailor": ("sews coats", "a needle", "a shop"),
    "gardener": ("plants roses", "a spade", "a garden"),
    "teacher": ("teaches children", "a book", "a school"),
    "doctor": ("heals the sick", "a lamp", "a hospital"),
    "painter": ("paints pictures", "a brush", "a studio"),
    "singer": ("sings songs", "a voice", "a theatre"),
    "sailor": ("sails ships", "a compass", "a ship"),
    "hunter": ("tracks deer", "a bow", "a forest"),
    "shepherd": ("guards sheep", "a staff", "a meadow"),
    "brewer": ("brews beer", "a barrel", "a brewery"),
    "printer": ("prints books", "a press", "a workshop"),
    "mason": ("builds walls", "a chisel", "a quarry"),
    "cook": ("cooks soup", "a pot", "a kitchen"),
    "clerk": ("writes letters", "a pen", "an office"),
    "judge": ("settles quarrels", "a law book", "a court"),
    "watchmaker": ("mends clocks", "a lens", "a shop"),
}
ANIMALS = {  # animal: (sound or habit, home)
    "cat": ("chases mice", "a house"), "dog": ("guards the door", "a house"),
    "goat": ("climbs rocks", "a hill"), "horse": ("pulls carts", "a stable"),
    "owl": ("hunts at night", "a tower"), "raven": ("steals rings", "a tree"),
    "hare": ("runs fast", "a field"), "fox": ("hunts hens", "a den"),
    "duck": ("swims in ponds", "a pond"), "goose": ("guards the yard", "a yard"),
    "mole": ("digs tunnels", "a garden"), "otter": ("catches fish", "a river"),
    "pony": ("carries children", "a stable"), "turtle": ("walks slowly", "a pond"),
    "pigeon": ("carries letters", "a loft"), "hedgehog": ("sleeps in winter", "a hedge"),
}
SEASONS = {
    "spring": ("the flowers open", "mild"), "summer": ("the days are long", "hot"),
    "autumn": ("the leaves fall", "cool"), "winter": ("the snow falls", "cold"),
}
MONTHS = ("January February March April May June July August September October November "
          "December").split()
MONTHS_OF = {  # season: its months
    "spring": MONTHS[2:5], "summer": MONTHS[5:8], "autumn": MONTHS[8:11],
    "winter": [MONTHS[11], *MONTHS[:2]],
}
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
NUMBERS = "two three four five six seven eight nine ten eleven twelve".split()
COUNT = ["one", *NUMBERS, *("thirteen fourteen fifteen sixteen seventeen eighteen nineteen "
                           "twenty").split()]
COLOURS = "red blue green white black yellow grey brown purple orange pink golden".split()
ADJECTIVES = ("small large old new heavy light round broken bright plain curved hollow narrow "
              "polished painted carved").split()
OPPOSITES = (  # each word is in one pair only
    ("small", "large"), ("old", "new"), ("heavy", "light"), ("narrow", "wide"), ("bright", "dark"),
    ("broken", "whole"), ("hollow", "solid"), ("curved", "straight"), ("hot", "cold"),
    ("sweet", "sour"), ("early", "late"), ("full", "empty"), ("poor", "rich"), ("quick", "slow"),
    ("open", "closed"), ("warm", "cool"), ("quiet", "loud"),
)
MATERIALS = ("copper silver brass iron wooden glass stone leather ivory tin bronze marble "
             "crystal clay").split()
THINGS = ("whistle lantern key coin spoon ring bell mirror knife box cup button chain comb "
          "candle bottle arrow needle hook plate mask drum flute clock").split()
TASTES = "smoked sweet salted spiced boiled roasted sour fried pickled cold".split()
CROPS = ("pear onion plum carrot apple bean cherry turnip mushroom leek barley lemon "
         "walnut cabbage honey garlic").split()
DISHES = "soup pie cake stew bread pudding salad tart jam dumplings porridge sausage".split()
CLOTHS = "wool linen silk rope paper candles barrels boots hats bricks cheese tea".split()
INSTRUMENTS = "violin trumpet harp flute drum organ lute horn piano guitar".split()
SPOTS = ("bridge chapel stable tower mill bakery well gate oak library inn harbour market "
         "school garden theatre").split()
SHOWS = "feast fair race contest parade market concert wedding".split()
RIVERS = ("Ash Briar Cold Deep Eel Fern Gull Heron Ivy Long Moss Otter Reed Stone Trout "
          "Willow").split()

FILLERS = (  # sentences that hold no fact anyone asks about
    "The wind was cold that morning.", "Nobody spoke for a while.",
    "The road was long and the rain was slow.", "People still talk about it in the evening.",
    "Some say this is true, and some say it is not.", "The children played near the water.",
    "It had been a quiet year.", "The old books say little more.",
    "A cart went by and did not stop.", "The lamps were lit early.",
    "Most visitors stay for a night or two.", "The bread was still warm.",
    "Snow lay on the roofs until the end of the month.", "A dog slept in front of the door.",
    "The answer came much later.", "There was music in the next house.",
    "The grass had not been cut for weeks.", "No one could remember a better harvest.",
    "The letters were kept in a drawer.", "Everyone knew the way by heart.",
    "The bells were heard far away.", "The last boat had already left.",
    "The market was full of people.", "By noon the fog was gone.",
)


Split = Literal["train", "held_out"]
"""Which names, values and wordings a text is made of."""

HELD_OUT_SHARE = 4
"""One name or value phrase in so many is held out."""

# Names are two parts, so that a held-out name is a new word made of known syllables.
_PARTS = {
    "first": (
        "Al Ber Cor Da El Fen Gar Hal Is Jor Kel Lu Mi Nor Or Pel Ro Sel Ta Ul Ves Wen Yor Zan",
        "an ara bel din dra el eth ia in is lan len mir na nor ra rek rin sa tan to va vin wen",
    ),
    "last": (
        "Ab Bran Cal Dor Er Fal Gren Har Il Jas Kor Lin Mor Nes Ol Pra Quin Rus Stor Tol Ur Vas "
        "Wil Yar",
        "ack aldo and ard ato bane beck dal den eld ero gar ham ick lane mond nath ock ris ston "
        "sul tar und wick",
    ),
    "place": (
        "Ald Birch Clay Dun Elm Fox Glen Hazel Iron Kings Lark Marsh North Oak Pine Raven Salt "
        "Thorn Under West",
        "bridge brook bury dale fell ford gate ham haven hill holm mere moor mouth port stead "
        "ton wick wood worth",
    ),
    "title": (
        "Am Bal Cru Del Es Fi Gol Hes Im Ka Lor Mel Nim Os Pho Ri Sa Tre Vo Zel",
        "bor cas dune fax gon hune kar lune mon nix pher quil rane sis thos vane wyn xor yss zar",
    ),
}


def is_held_out(text: str) -> bool:
    """Whether a name or phrase belongs to the held-out split, by its CRC-32."""
    return crc32(text.encode()) % HELD_OUT_SHARE == 0


def of_split(words: Sequence[str], split: Split) -> list[str]:
    """The words of one split."""
    return [word for word in words if is_held_out(word) == (split == "held_out")]


@cache
def names(kind: str, split: Split) -> list[str]:
    """All names of a kind (`first`, `last`, `place`, `title`) in one split."""
    heads, tails = (part.split() for part in _PARTS[kind])
    return of_split([head + tail for head in heads for tail in tails], split)
