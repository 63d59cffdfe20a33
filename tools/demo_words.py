"""Word lists and random values for the demo model's data: owns vocabulary, knows nothing of conversations."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NAMES = words(
    "Anna Boris Carla David Elena Felix Grace Henry Ines Jonas Karin Liam Mona Nils Olga Paul Quinn Rosa Simon Tara "
    "Ulrich Vera Walter Xenia Yusuf Zoe Amir Bella Chen Diego Emma Farid Gina Hugo Iris Jack Kira Leon Maya Noah "
    "Owen Petra Ravi Sara Tom Una Victor Wendy Yara Zack Alice Bob Clara Dan Eva Frank Greta Hans Ivan Julia Kate"
)
HELD_NAMES = words("Biscuit Marlow Sigrid Tobias Priya Odette Casper Linnea Thaddeus Imogen")
CITIES = words(
    "Paris Berlin Madrid Rome Lisbon Vienna Prague Oslo Athens Dublin Geneva Hamburg Munich Milan Naples Porto "
    "Seville Lyon Nice Ghent Bruges Krakow Riga Tallinn Turin Boston Chicago Denver Seattle Toronto Sydney Osaka"
)
COLOURS = words(
    "red blue green yellow purple orange black white grey brown pink teal violet amber crimson turquoise silver gold "
    "indigo maroon olive navy scarlet beige"
)
FOODS = words(
    "pizza soup rice pasta bread cheese apples salad curry noodles pancakes sushi stew olives mango chocolate tacos "
    "porridge lentils waffles dumplings honey cake beans"
)
ANIMALS = words(
    "dog cat horse rabbit parrot hamster turtle goldfish sheep goat donkey pony goose duck ferret lizard"
)
THINGS = words(
    "project server house car boat garden office kitchen library router printer camera bicycle suitcase cabinet "
    "basement garage cellar safe locker attic workshop warehouse bakery museum theatre clinic school hotel station "
    "ship rocket drone robot lamp clock radio piano guitar violin painting book notebook folder archive database "
    "cluster laptop phone tablet wallet passport ticket package letter invoice contract report meeting lecture "
    "concert festival holiday journey picnic dinner breakfast recipe team club band course exam lab bridge tunnel "
    "tower gate fence door window roof bench statue fountain market shop store factory farm field forest lake river "
    "island harbour airport train tram bus truck tractor"
)
RELATIVES = words(
    "mother father sister brother uncle aunt cousin neighbour boss teacher doctor friend colleague landlord "
    "plumber dentist manager daughter son grandmother"
)
MONTHS = words(
    "January February March April May June July August September October November December"
)
DAYS = words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
PLAIN = words(
    "apple anchor arrow autumn badge basket beacon berry bottle branch bridge bucket button candle canyon carpet "
    "castle cedar circle cloud copper corner cotton cradle crystal desert diamond dragon eagle ember engine falcon "
    "feather fern flame flower forest fossil fountain galaxy garden ginger glacier granite hammer harbor hazel helmet "
    "hollow horizon island ivory jacket jungle kettle ladder lantern lemon lily magnet maple marble meadow melon mirror "
    "monsoon mountain needle nutmeg oak ocean onion orbit orchid otter oyster paper pearl pebble pepper piano pine "
    "planet pocket prairie quartz quiver rabbit raven ribbon river rocket saddle saffron salmon sapphire shadow signal "
    "slate sparrow spruce stone storm summit sunset thistle thunder tiger timber tulip tunnel turnip umbra valley "
    "velvet violin walnut willow window winter yarrow zephyr zinc"
)
HELD_PLAIN = words("juniper cobalt pelican mosaic trellis bramble obsidian kayak lavender walrus")
ONSETS = words("b c d f g h j k l m n p r s t v w z br cl dr fl gr kr pl qu sh sk st th tr")
VOWELS = words("a e i o u a e i o u ai ea oo")
CODAS = ("", "", "", "n", "r", "l", "s", "t", "m", "k", "x", "nd", "st")

CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Spain": "Madrid", "Italy": "Rome", "Portugal": "Lisbon",
    "Austria": "Vienna", "Norway": "Oslo", "Sweden": "Stockholm", "Finland": "Helsinki", "Denmark": "Copenhagen",
    "Greece": "Athens", "Ireland": "Dublin", "Poland": "Warsaw", "Hungary": "Budapest", "Belgium": "Brussels",
    "Switzerland": "Bern", "Japan": "Tokyo", "China": "Beijing", "India": "New Delhi", "Egypt": "Cairo",
    "Kenya": "Nairobi", "Canada": "Ottawa", "Brazil": "Brasilia", "Chile": "Santiago", "Peru": "Lima",
    "Cuba": "Havana", "Russia": "Moscow", "Turkey": "Ankara", "Iceland": "Reykjavik", "Australia": "Canberra",
    "the Netherlands": "Amsterdam", "the United Kingdom": "London", "the United States": "Washington",
    "Mexico": "Mexico City", "Argentina": "Buenos Aires", "Thailand": "Bangkok", "Vietnam": "Hanoi",
    "Ukraine": "Kyiv", "Romania": "Bucharest", "Croatia": "Zagreb",
}  # fmt: skip
OPPOSITES = {
    "hot": "cold", "big": "small", "up": "down", "fast": "slow", "light": "dark", "happy": "sad", "old": "new",
    "open": "closed", "early": "late", "high": "low", "wet": "dry", "hard": "soft", "full": "empty", "left": "right",
    "day": "night", "black": "white", "strong": "weak", "long": "short", "rich": "poor", "loud": "quiet",
}  # fmt: skip


def pick(rng: Random, items: Sequence[T]) -> T:
    return items[rng.randrange(len(items))]


def made_up(rng: Random) -> str:
    """A pronounceable word that is most likely new."""
    n = rng.choice((2, 2, 3))
    return "".join(pick(rng, ONSETS) + pick(rng, VOWELS) for _ in range(n)) + pick(rng, CODAS)


def digits(rng: Random, low: int = 2, high: int = 5) -> str:
    n = rng.randint(low, high)
    return str(rng.randint(10 ** (n - 1), 10**n - 1))


def code(rng: Random) -> str:
    letters = "ABCDEFGHJKLMNPQRSTUVWXYZ"
    shape = rng.randrange(5)
    if shape == 0:
        return f"{pick(rng, letters)}{pick(rng, letters)}-{digits(rng, 2, 4)}"
    if shape == 1:
        return f"{pick(rng, letters)}{digits(rng, 1, 3)}"
    if shape == 2:
        return "".join(pick(rng, "0123456789abcdef") for _ in range(rng.randint(4, 6)))
    if shape == 3:
        return f"{pick(rng, PLAIN)}-{digits(rng, 1, 3)}"
    return f"{made_up(rng)}{digits(rng, 1, 2)}"


def word(rng: Random, held: bool = False) -> str:
    if rng.random() < 0.5:
        return made_up(rng)
    return pick(rng, HELD_PLAIN) if held else pick(rng, PLAIN)


def name(rng: Random, held: bool = False) -> str:
    if rng.random() < 0.5:
        return made_up(rng).capitalize()
    return pick(rng, HELD_NAMES) if held else pick(rng, NAMES)


def clock(rng: Random) -> str:
    return f"{rng.randint(0, 23):02d}:{rng.choice((0, 5, 10, 15, 20, 30, 40, 45, 50)):02d}"


def value(rng: Random, kind: str, held: bool = False) -> str:
    """A value of a kind: name word number code colour city food date time pair any."""
    if kind == "any":
        kind = pick(rng, ("name", "word", "word", "number", "code", "colour", "pair"))
    match kind:
        case "name":
            return name(rng, held)
        case "word":
            return word(rng, held)
        case "number":
            return digits(rng)
        case "code":
            return code(rng)
        case "colour":
            return pick(rng, COLOURS) if rng.random() < 0.8 else word(rng, held)
        case "city":
            return pick(rng, CITIES) if rng.random() < 0.5 else made_up(rng).capitalize()
        case "food":
            return pick(rng, FOODS) if rng.random() < 0.6 else word(rng, held)
        case "date":
            return f"{rng.randint(1, 28)} {pick(rng, MONTHS)}"
        case "time":
            return clock(rng)
        case "pair":
            return f"{pick(rng, COLOURS)} {word(rng, held)}"
    raise ValueError(kind)
