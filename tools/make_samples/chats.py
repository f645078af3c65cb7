"""Chats of one to five rounds in the form of the OpenAI ``messages`` list."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from make_samples.facts import ANIMALS, ELEMENTS, INSTRUMENTS, PLACES, PLANETS, with_article
from make_samples.handwritten_chats import CHATS
from make_samples.recipes import RECIPES

Message = dict[str, str]
Round = tuple[str, str]

COUNT_BY_TOPIC = 10


def chats() -> Iterator[dict[str, list[Message]]]:
    """Rows ``{messages}``: an optional system message, then user and assistant in turn, the assistant last."""
    rng = random.Random(55)
    for system, rounds in CHATS:
        yield _chat(system, rounds)
    for number in range(COUNT_BY_TOPIC):
        yield _travel(rng, number)
        yield _chemistry(rng, number)
        yield _zoo(rng, number)
        yield _kitchen(rng, number)
    for planet, instrument in zip(PLANETS, INSTRUMENTS, strict=False):
        yield _chat(
            "You answer in one sentence." if planet.order % 2 else None,
            [
                (f"Tell me something about {planet.name}.", planet.note),
                ("And its moons?", f"It has {planet.moons}."),
                (f"New topic: the {instrument.name}.", f"{_capital(instrument.sound)}."),
            ][: 1 + planet.order % 3],
        )


def _chat(system: str | None, rounds: Sequence[Round]) -> dict[str, list[Message]]:
    messages = [{"role": "system", "content": system}] if system else []
    for user, assistant in rounds:
        messages += [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]
    return {"messages": messages}


def _travel(rng: random.Random, number: int) -> dict[str, list[Message]]:
    place = PLACES[number * 4 + 1]
    rounds = [
        (f"I'm planning a trip to {place.country}. What is it known for?", f"{place.country} is known for {place.known}."),
        ("Which language should I learn a little of?", f"{place.language}. Even a simple greeting is welcome."),
        ("What money do they use?", f"They use {place.currency}."),
        ("Is there a large river?", f"Yes, the {place.river} is one of the large rivers there."),
        ("Where is the government?", f"In {place.capital}, the capital. Have a good journey! 🧳"),
    ]
    return _chat(rng.choice((None, "You are a cheerful travel guide.")), rounds[: 1 + number % 5])


def _chemistry(rng: random.Random, number: int) -> dict[str, list[Message]]:
    element, other = rng.sample(ELEMENTS, 2)
    rounds = [
        (f"Which element has the symbol {element.symbol}?", f"{element.name}, with atomic number {element.number}."),
        ("What is it good for?", f"It is used in {element.uses}."),
        ("Tell me something surprising.", element.note),
        (
            f"Is {other.name.lower()} heavier?",
            f"Its atoms are {'heavier' if other.number > element.number else 'lighter'}: "
            f"the atomic number of {other.name.lower()} is {other.number}.",
        ),
    ]
    return _chat("You are a patient chemistry teacher." if number % 2 else None, rounds[: 2 + number % 3])


def _zoo(rng: random.Random, number: int) -> dict[str, list[Message]]:
    animal = ANIMALS[number * 2 + 1]
    rounds = [
        ("I'm thinking of an animal. Can you guess it? " + animal.note, f"Is it {with_article(animal.name)}?"),
        (rng.choice(("Yes! What does it eat?", "Right. What does it live on?")), f"Mostly this: {animal.food}."),
        ("Where could I see one?", f"Its home is {animal.home}."),
    ]
    return _chat(None, rounds[: 1 + number % 3])


def _kitchen(rng: random.Random, number: int) -> dict[str, list[Message]]:
    name, (ingredients, steps) = list(RECIPES.items())[number]
    day = rng.choice(("Friday", "Saturday", "Sunday"))
    rounds = [
        (f"I'd like to make {name} on {day}. What do I need?", "\n".join(f"- {item}" for item in ingredients)),
        ("Good, I have all that. And now?", "\n".join(f"{count}. {step}" for count, step in enumerate(steps, start=1))),
        (rng.choice(("Thank you!", "Lovely, thanks!")), rng.choice(("Enjoy your meal!", "Bon appétit! 🍽️"))),
    ]
    return _chat("You are a cook. Answer with short lists." if number % 3 else None, rounds[: 1 + number % 3])


def _capital(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]
