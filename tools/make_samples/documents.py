"""Pretraining documents: a few paragraphs each, from the tables of facts and from the hand-written essays."""

from __future__ import annotations

import random
from collections.abc import Iterator

from make_samples.essays import ESSAYS
from make_samples.facts import ANIMALS, ELEMENTS, INSTRUMENTS, PLACES, PLANETS, Place, with_article
from make_samples.problem_templates import NAMES, THINGS
from make_samples.recipes import RECIPES

DIARIES = 26
MONTHS = ("January", "March", "April", "May", "June", "August", "September", "October", "November")
WEATHER = (
    "Fog until noon",
    "A clear, cold morning",
    "Rain all night",
    "Warm wind from the south",
    "The first frost",
    "Bright sun and small clouds",
)
TASKS = (
    "mended the gate",
    "painted two window frames",
    "walked to the reservoir and back",
    "sorted a drawer full of string",
    "repaired the lamp in the hall",
    "baked flatbread and burnt the first piece",
    "read aloud to the neighbour's children",
    "wrote a letter to the council about the bench",
    "planted forty crocuses under the birch",
    "tried in vain to teach the parrot a song",
    "swept the yard twice because of the wind",
    "lent the long ladder to the schoolteacher",
    "cooked lentil soup for nine",
    "looked for my glasses, which I was wearing",
)
SIGHTS = (
    "a hare sat in the middle of the path and did not move",
    "swallows gathered on the wire",
    "the river had left a line of reeds on the meadow",
    "someone had hung a bell in the pear tree",
    "two boys tried to sell us our own ladder",
    "the moon rose before the sun was down",
    "a fox crossed the square as if it paid rent there",
    "the ferry carried a grand piano",
    "all the church clocks disagreed by a minute",
)


def documents() -> Iterator[dict[str, str]]:
    """Rows ``{text}`` in mixed order; paragraphs are separated by an empty line."""
    rng = random.Random(144)
    texts = [*ESSAYS, *_places(rng), *_elements(rng), *_animals(rng), *_sky_and_music(), *_recipes(), *_diaries(rng)]
    for text in rng.sample(texts, len(texts)):
        yield {"text": text}


def notes() -> Iterator[str]:
    """One document a line, without line breaks inside."""
    rng = random.Random(233)
    for place in PLACES:
        yield rng.choice(
            (
                f"{place.capital} is the capital of {place.country}, a country known for {place.known}.",
                f"People in {place.country} speak {place.language} and pay with {place.currency}.",
                f"The {place.river} flows in {place.country}, whose capital is {place.capital}.",
            )
        )
    for animal in ANIMALS[::2]:
        yield f"Field note: {animal.name}, {animal.group}, seen in {animal.home}. {animal.note}"
    for instrument in INSTRUMENTS[::2]:
        yield f"The {instrument.name}: {instrument.sound}."


def _join(*paragraphs: str) -> str:
    return "\n\n".join(paragraphs)


def _places(rng: random.Random) -> Iterator[str]:
    for place in PLACES:
        start = rng.choice(
            (
                f"{place.country} is a country in {place.continent}. Its capital is {place.capital}.",
                f"Travellers who arrive in {place.capital} stand in the capital of {place.country}, a country in {place.continent}.",
                f"In {place.continent} lies {place.country}. The government sits in {place.capital}.",
            )
        )
        known = rng.choice(
            (
                f"If you ask people abroad what they think of first, they will often name {place.known}.",
                f"The country is known for {place.known}. Of course there is far more to it than that.",
                f"Guidebooks like to begin with {place.known}, and it is not a bad beginning.",
            )
        )
        money = rng.choice(
            (
                f"At the till you pay with {place.currency}, and you will hear {place.language}.",
                f"The street signs are written in {place.language}, and people pay with {place.currency}.",
            )
        )
        yield _join(place.country, f"{start} {money}", known, _river(place, rng), _travellers(place, rng))


def _river(place: Place, rng: random.Random) -> str:
    return rng.choice(
        (
            f"One of the large rivers is the {place.river}. Farms, towns and old trade routes line its banks.",
            f"Follow the {place.river} for a day and you will see how water shapes a country: where it bends there are fields, where it "
            "narrows there are bridges.",
            f"The {place.river} has its quiet stretches and its wild ones, and maps of {place.country} are hard to imagine without it.",
        )
    )


def _travellers(place: Place, rng: random.Random) -> str:
    first, second = rng.sample(NAMES, 2)
    return rng.choice(
        (
            f'When {first} came home from {place.capital}, {second} asked what had been best. "The bread in the morning," was the answer, '
            '"and that nobody was in a hurry."',
            f"{first} and {second} spent {rng.randrange(3, 20)} days there. They had planned to see everything, and in the end they were "
            "glad to have seen one street well.",
            f"A tip from {first}: learn to say thank you in {place.language.split(' and ')[0]} before you arrive. A tip from {second}: "
            "sit on the shady side of the bus.",
            f"{first} keeps a jar with a coin from every journey. The one from {place.country} lies on top, next to a ticket for the "
            f"museum that {second} never found.",
        )
    )


def _elements(rng: random.Random) -> Iterator[str]:
    for element in ELEMENTS:
        other = rng.choice([candidate for candidate in ELEMENTS if candidate != element])
        low, difference = element.name.lower(), element.number - other.number
        uses = rng.choice((f"It is used in {element.uses}.", f"We meet it in {element.uses}.", f"Its uses include {element.uses}."))
        yield _join(
            f"{element.name} ({element.symbol})",
            f"{element.name} is the chemical element with atomic number {element.number}. An atom of {low} therefore has "
            f"{_protons(element.number)} in its nucleus. At room temperature it is a {element.state}.",
            f"{uses} {element.note}",
            f"Compare it with {other.name.lower()}, whose symbol is {other.symbol}: that atom has {_protons(other.number)}, which is "
            f"{abs(difference)} {'fewer' if difference > 0 else 'more'}. {other.note}",
        )


def _protons(number: int) -> str:
    return f"{number} {'proton' if number == 1 else 'protons'}"


def _animals(rng: random.Random) -> Iterator[str]:
    for animal in ANIMALS:
        opening = rng.choice(
            (
                f"The {animal.name} is {with_article(animal.group)} that lives in {animal.home}.",
                f"Look for the {animal.name} in {animal.home}. It is {with_article(animal.group)}.",
                f"Few animals suit their home as well as the {animal.name}, {with_article(animal.group)} from {animal.home}.",
            )
        )
        other = rng.choice([candidate for candidate in ANIMALS if candidate.group != animal.group])
        yield _join(
            f"{opening} Its menu: {animal.food}. {animal.note}",
            f"How different is the {other.name}! It is {with_article(other.group)}, its home is {other.home}, and it eats {other.food}.",
            _scene(with_article(animal.name), rng),
        )


def _scene(animal: str, rng: random.Random) -> str:
    visitor, keeper = rng.sample(NAMES, 2)
    return rng.choice(
        (
            f'{visitor} saw {animal} for the first time. "Does it have a name?"\n"It does," said {keeper}, who looked after the animals, '
            '"but it has not told us yet."',
            f"{visitor} drew {animal} on the back of an envelope. {keeper} guessed first a cloud, then a shoe, and then got it right.",
            f'"If I were {animal}," said {visitor}, "I would sleep until noon." {keeper} pointed out that this was nothing new.',
        )
    )


def _sky_and_music() -> Iterator[str]:
    for planet in PLANETS:
        yield _join(
            f"{planet.name}, counted from the Sun, is planet number {planet.order}. It is {with_article(planet.kind)} with {planet.moons}.",
            f"One orbit takes {planet.year}. {planet.note}",
        )
    for instrument in INSTRUMENTS:
        yield _join(
            f"How {with_article(instrument.name)} works",
            f"The {instrument.name} belongs to the {instrument.family} instruments. To make it sound, {instrument.sound}.",
            f"{instrument.note} The rest is practice, patience and kind neighbours.",
        )


def _recipes() -> Iterator[str]:
    for name, (ingredients, steps) in RECIPES.items():
        yield _join(f"# {name.capitalize()}", "\n".join(f"* {item}" for item in ingredients), " ".join(steps))


def _diaries(rng: random.Random) -> Iterator[str]:
    for number in range(DIARIES):
        days = (f"{1 + number + day} {MONTHS[number % len(MONTHS)]}. {_day(rng)}" for day in range(4))
        count = f"Count of {rng.choice(THINGS)} in the blue bowl this week: {rng.randrange(3, 99)}."
        yield _join(f"From the notebook of {rng.choice(NAMES)}", *days, count)


def _day(rng: random.Random) -> str:
    morning, afternoon = rng.sample(TASKS, 2)
    sight, other = rng.sample(SIGHTS, 2)
    ending = rng.choice(
        (
            f"On the way home {sight}.",
            f"{rng.choice(NAMES)} says that {sight}. I saw only that {other}.",
            f"In the evening {sight}, and nobody believed me.",
            "Otherwise nothing happened, which was pleasant.",
        )
    )
    return f"{rng.choice(WEATHER)}. I {morning}, and after lunch I {afternoon}. {ending}"
