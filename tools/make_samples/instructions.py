"""Instruction data in the forms of Alpaca and Dolly."""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction

from make_samples.facts import ANIMALS, ELEMENTS, INSTRUMENTS, PLACES, PLANETS, with_article
from make_samples.handwritten_instructions import INSTRUCTIONS
from make_samples.recipes import RECIPES

SENTENCES = (
    "The quick river carries seven small boats to the sea.",
    "Grandmother keeps her buttons in an old tea tin.",
    "On the hill behind the school stands a crooked pine.",
    "Nobody in the village remembers who built the stone bridge.",
    "A heron waited beside the pond until the rain stopped.",
    "Every evening the baker feeds the sparrows with crumbs.",
    "The last tram leaves the square at half past eleven.",
    "Seven candles burn in the window of the corner house.",
)
UNITS = (
    ("kilometres", "metres", Fraction(1000)),
    ("hours", "minutes", Fraction(60)),
    ("kilograms", "grams", Fraction(1000)),
    ("inches", "centimetres", Fraction("2.54")),
    ("weeks", "days", Fraction(7)),
    ("feet", "inches", Fraction(12)),
    ("litres", "millilitres", Fraction(1000)),
    ("dozens", "pieces", Fraction(12)),
)


def alpaca() -> Iterator[dict[str, str]]:
    """Rows ``{instruction, input, output}``; the input is empty where the instruction needs none."""
    rng = random.Random(13)
    rows = [*INSTRUCTIONS, *_about_text(), *_units(rng), *_lists(rng), *_geography(), *_nature()]
    for instruction, given, output in rng.sample(rows, len(rows)):
        yield {"instruction": instruction, "input": given, "output": output}


def _about_text() -> Iterator[tuple[str, str, str]]:
    for number, sentence in enumerate(SENTENCES):
        words = sentence.rstrip(".").split()
        tasks = (
            ("How many words does this sentence have?", str(len(words))),
            ("Write this sentence in capital letters.", sentence.upper()),
            ("Find the first of the longest words in this sentence.", max(words, key=len)),
            ("Write the words of this sentence backwards, one a line.", "\n".join(reversed(words))),
        )
        for task, answer in (tasks[number % 4], tasks[(number + 1) % 4]):
            yield task, sentence, answer


def _units(rng: random.Random) -> Iterator[tuple[str, str, str]]:
    for large, small, factor in UNITS:
        count = rng.randrange(3, 40)
        product = f"{float(count * factor):g}"
        yield f"Convert {count} {large} to {small}.", "", f"{count} {large} are {count} × {float(factor):g} = {product} {small}."


def _lists(rng: random.Random) -> Iterator[tuple[str, str, str]]:
    for number in range(4):
        animals = [animal.name for animal in rng.sample(ANIMALS, 4)]
        yield f"Sort these {len(animals)} animals alphabetically.", ", ".join(animals), ", ".join(sorted(animals, key=str.casefold))
        numbers = [rng.randrange(2, 90) for _ in range(5 + number)]
        yield f"Sort these {len(numbers)} numbers from large to small.", str(numbers), str(sorted(numbers, reverse=True))
    for name, (ingredients, _) in list(RECIPES.items())[:6]:
        yield f"Write a shopping list for {name}.", "", "\n".join(f"- {item}" for item in ingredients)


def _geography() -> Iterator[tuple[str, str, str]]:
    for place in PLACES[::3]:
        yield f"What is the capital of {place.country}?", "", f"The capital of {place.country} is {place.capital}."
    for place in PLACES[1::4]:
        yield f"Name the currency and a large river of {place.country}.", "", f"Currency: {place.currency}\nRiver: {place.river}"
    for place in PLACES[2::8]:
        yield "On which continent is this country?", place.country, f"{place.country} is in {place.continent}."


def _nature() -> Iterator[tuple[str, str, str]]:
    for animal in ANIMALS[2::5]:
        yield (
            f"What kind of animal is {with_article(animal.name)}, and where does it live?",
            "",
            f"It is {with_article(animal.group)}. It lives in {animal.home}.",
        )
    for element in ELEMENTS[1::5]:
        yield (
            f"Describe the element {element.name.lower()} as JSON.",
            "",
            (f'{{"symbol": "{element.symbol}", "number": {element.number}, "state": "{element.state}"}}'),
        )


def dolly() -> Iterator[dict[str, str]]:
    """Rows ``{instruction, context, response, category}``; the context is empty for open questions."""
    rng = random.Random(89)
    rows = [*_closed(), *_open(), *_creative()]
    for category, instruction, context, response in rng.sample(rows, len(rows)):
        yield {"instruction": instruction, "context": context, "response": response, "category": category}


def _closed() -> Iterator[tuple[str, str, str, str]]:
    for number, place in enumerate(PLACES[3::3]):
        context = (
            f"{place.country} lies in {place.continent}. Its capital is {place.capital}, and people pay with {place.currency}. The "
            f"{place.river} is one of its large rivers. The country is known for {place.known}."
        )
        if number % 2:
            yield "closed_qa", f"According to the text, what do people in {place.country} pay with?", context, place.currency
        else:
            yield (
                "information_extraction",
                f"Extract the capital and the river from the text on {place.country}.",
                context,
                f"Capital: {place.capital}\nRiver: {place.river}",
            )
    for animal in ANIMALS[3::4]:
        context = f"The {animal.name} is {with_article(animal.group)}. It lives in {animal.home}. Its food: {animal.food}. {animal.note}"
        yield (
            "summarization",
            f"Sum up what we learn about the {animal.name}.",
            context,
            f"The {animal.name}, {with_article(animal.group)}, lives in {animal.home}.",
        )
    for left, right in zip(ANIMALS[::5], reversed(ELEMENTS[::5]), strict=False):
        words = f"{left.name}, {right.name.lower()}"
        yield (
            "classification",
            f"Which is an animal and which is a chemical element? {words}",
            "",
            f"Animal: {left.name}\nElement: {right.name.lower()}",
        )


def _open() -> Iterator[tuple[str, str, str, str]]:
    for planet in PLANETS:
        yield (
            "open_qa",
            f"What kind of planet is {planet.name}, counted from the Sun?",
            "",
            f"{planet.name} is {with_article(planet.kind)}, number {planet.order} from the Sun. {planet.note}",
        )
    for instrument in INSTRUMENTS[1::2]:
        yield (
            "general_qa",
            f"Why can we hear {with_article(instrument.name)}?",
            "",
            f"Something vibrates and moves the air: {instrument.sound}. {instrument.note}",
        )
    for element in ELEMENTS[2::2]:
        yield "open_qa", f"What do people need {element.name.lower()} for?", "", f"For {element.uses}. {element.note}"


def _creative() -> Iterator[tuple[str, str, str, str]]:
    for name, (_, steps) in list(RECIPES.items())[4:]:
        yield (
            "creative_writing",
            f"Tell me how to make {name}, as if you were a proud chef.",
            "",
            f"Ah, {name}! Listen closely.\n" + "\n".join(steps) + "\nAnd then: silence, and the sound of spoons.",
        )
    yield (
        "brainstorming",
        "What could one make from an old ladder?",
        "",
        "- a bookshelf\n- a rack for flower pots\n- a frame for climbing beans\n- a coat stand\n- a lamp above the dining table",
    )
    yield (
        "brainstorming",
        "Give me ideas for a rainy Sunday.",
        "",
        (
            "- bake something that takes hours\n- write a letter by hand\n- sort photographs\n- build a den from blankets\n"
            "- visit a small museum"
        ),
    )
    yield (
        "creative_writing",
        "Write the first line of a novel about a clockmaker.",
        "",
        "The clockmaker had stopped every clock in the shop, and for the first time in forty years he could hear the street.",
    )
