"""Preference data in the forms of HH-RLHF (github.com/anthropics/hh-rlhf) and UltraFeedback binarized."""

from __future__ import annotations

import random
from collections.abc import Iterator

from make_samples.everyday import EVERYDAY, Everyday
from make_samples.facts import ANIMALS, ELEMENTS, INSTRUMENTS, PLACES, PLANETS, with_article

Message = dict[str, str]


def hh() -> Iterator[dict[str, str]]:
    """Rows ``{chosen, rejected}``: two dialogues that differ in the last answer only; some have more than one round."""
    rng = random.Random(21)
    for number, item in enumerate([*EVERYDAY[::2], *_about_facts(rng)]):
        rounds = [*_greeting(rng, number), (item.question, "")]
        prompt = "".join(f"\n\nHuman: {human}\n\nAssistant: {assistant}" for human, assistant in rounds)
        yield {"chosen": prompt + item.good, "rejected": prompt + item.weak}


def _greeting(rng: random.Random, number: int) -> Iterator[tuple[str, str]]:
    """Earlier rounds for some dialogues; no two dialogues have the same."""
    if number % 3 == 1:
        left, right = 7 + number, rng.randrange(3, 10)
        yield f"Before we start, what is {left} times {right}?", f"{left} times {right} is {left * right}. What comes next?"
    if number % 7 == 1:
        animal = ANIMALS[number // 7 * 2 + 1]
        yield (
            f"And is {with_article(animal.name)} a mammal?",
            f"{'Yes' if animal.group == 'mammal' else 'No'}, the {animal.name} is {with_article(animal.group)}.",
        )


def _about_facts(rng: random.Random) -> list[Everyday]:
    """Questions whose weak answer is wrong, rude or empty."""
    items = []
    for place, other in zip(PLACES[0:30:2], PLACES[1:31:2], strict=True):
        items.append(
            Everyday(
                f"Which city is the capital of {place.country}?",
                f"The capital of {place.country} is {place.capital}. The country is known for {place.known}.",
                f"I think it is {other.capital}, but look it up yourself.",
            )
        )
    for animal in ANIMALS[::2]:
        items.append(
            Everyday(
                f"My daughter wants to know what {with_article(animal.name)} eats.",
                f"It eats {animal.food}. She may also like this: {animal.note}",
                rng.choice(("Food, like every animal.", "Why would anybody want to know that?", "It eats stones.")),
            )
        )
    for element in ELEMENTS[::3]:
        items.append(
            Everyday(
                f"What does the letter code {element.symbol} stand for in chemistry?",
                f"{element.symbol} is the symbol of {element.name.lower()}, element number {element.number}. {element.note}",
                f"Many things. Perhaps it is number {element.number + 7}.",
            )
        )
    for planet in PLANETS:
        items.append(
            Everyday(
                f"How long is a year on {planet.name}?",
                f"{planet.name} needs {planet.year} for one trip around the Sun.",
                "A year is always a year.",
            )
        )
    for instrument in INSTRUMENTS[:8:2]:
        items.append(
            Everyday(
                f"How does {with_article(instrument.name)} make its sound?",
                f"In short, {instrument.sound}. {instrument.note}",
                "You play it and then you hear it.",
            )
        )
    return items


def ultrafeedback() -> Iterator[dict[str, object]]:
    """Rows ``{prompt, chosen, rejected, score_chosen, score_rejected}``; both answers are message lists that start with the prompt."""
    rng = random.Random(34)
    for item in [*EVERYDAY[1::2], *_comparisons()]:
        high = rng.randrange(12, 20) / 2
        yield {
            "prompt": item.question,
            "chosen": _messages(item.question, item.good),
            "rejected": _messages(item.question, item.weak),
            "score_chosen": high,
            "score_rejected": high - rng.randrange(1, 11) / 2,
        }


def _messages(question: str, answer: str) -> list[Message]:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def _comparisons() -> Iterator[Everyday]:
    for left, right in zip(PLACES[1:27:2], PLACES[2:28:2], strict=True):
        yield Everyday(
            f"Compare {left.country} and {right.country} in a small table: capital, language, currency.",
            f"| | {left.country} | {right.country} |\n|---|---|---|\n| capital | {left.capital} | {right.capital} |\n"
            f"| language | {left.language} | {right.language} |\n| currency | {left.currency} | {right.currency} |",
            f"{left.country} and {right.country} are two different countries with many differences.",
        )
    for low, high in zip(ELEMENTS[1:24:2], ELEMENTS[2:24:2], strict=False):
        yield Everyday(
            f"Which atom has more protons, {low.name.lower()} or {high.name.lower()}, and by how many?",
            f"{high.name} has {high.number} protons and {low.name.lower()} has {low.number}, so the difference is "
            f"{high.number} - {low.number} = {high.number - low.number}.",
            f"{low.name}, because its name comes first.",
        )
    for animal in ANIMALS[1::5]:
        yield Everyday(
            f"Write two sentences about the {animal.name} for a children's magazine.",
            f"The {animal.name} lives in {animal.home}. {animal.note}",
            f"{animal.name.upper()}. {animal.name.upper()}.",
        )
