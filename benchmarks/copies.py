"""How many copies of held-out texts the rules of leaks find, by disguise and length, and how many near-duplicates, by share of changed text.

    python -m benchmarks.copies [--seed 20] [--misses]

Texts are drawn from words below. The tables stand on the page about quality; `prep_assets_tests/quality/test_figures.py` makes them again.
"""

from __future__ import annotations

import argparse
import html
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from textwrap import wrap
from urllib.parse import quote

from prep_assets.extensions.leaks.overlap import CLASSES, LENGTHS, RULES, Passages
from prep_assets.extensions.quality.near_duplicates import near_duplicates
from prep_assets.extensions.quality.steps import Examples, Step
from prep_assets.extensions.quality.units import WORD
from prep_assets.samples import Sample, turn

SEED, OF_EACH = 20, 20
WORDS: Mapping[str, Sequence[str]] = {
    "English": re.findall(
        r"\w+",
        "Ada Boris Carmen Dmitri Elif Farid Greta Hugo Irina Jonas Keiko Lars buys sells counts carries paints repairs borrows hides weighs sorts "
        "lamps shells coins boats ribbons melons clocks kites spoons letters bricks saddles behind beside under near above the a old narrow quiet "
        "flooded wooden distant crowded bridge harbour market station garden mill tower library bakery stable when before and because although it",
    ),
    "Chinese": [*map(chr, range(0x4E00, 0x5200))],
    "Japanese": [*map(chr, (*range(0x3042, 0x3094), *range(0x65E5, 0x68E5)))],
}
"""Language → its words; of Chinese and Japanese, its characters."""
BEFORE = {"English": "Please answer this one:", "Chinese": "请回答下面的问题：", "Japanese": "次の問いに答えてください。"}


def text(chance: random.Random, language: str, words: int) -> str:
    """Sentences of that many words, or characters, some of which are numbers."""
    said = [str(chance.randrange(2, 999)) if chance.random() < 0.06 else chance.choice(WORDS[language]) for _ in range(words)]
    space, stop = (" ", ".") if language == "English" else ("", "。")
    return space.join(word + stop * (at % 14 == 0 or at == words) for at, word in enumerate(said, 1))


def _middle(said: str) -> int:
    at = max(said.find(" ", len(said) // 2), len(said) // 2)
    while said[at : at + 1].isdigit():
        at += 1
    return at


def _wide(said: str) -> str:
    return "".join(chr(ord(sign) + 0xFEE0) if "!" <= sign <= "~" else sign for sign in said)


_LOOK_ALIKES = str.maketrans("aceopxy", "\u0430\u0441\u0435\u043e\u0440\u0445\u0443")
"""Latin letters, and Cyrillic ones."""
DISGUISES: Mapping[str, Callable[[str, str], Mapping[str, object]]] = {
    "verbatim": lambda said, before: {"user": [f"{before}\n{said}"]},
    "in other words' midst": lambda said, before: {"user": [f"{before} {said} {before}"]},
    "other case": lambda said, before: {"user": [said.swapcase()]},
    "wrapped behind `> `": lambda said, before: {"user": ["\n".join(f"> {line}" for line in wrap(f"{before} {said}", 40))]},
    "split over turns": lambda said, before: {"user": [said[: _middle(said)], said[_middle(said) :]]},
    "HTML entities": lambda said, before: {"user": [f"<p>{html.escape(said).replace(' ', '&nbsp;')}</p>"]},
    "characters as `&#x…;`": lambda said, before: {"user": ["".join(f"&#x{ord(sign):x};" for sign in said)]},
    "zero-width in words": lambda said, before: {"user": ["".join(f"{sign}\u200b" for sign in said)]},
    "zero-width for spaces": lambda said, before: {"user": [said.replace(" ", "\u200b") if " " in said else "\u200b".join(said)]},
    "full width": lambda said, before: {"user": [_wide(said)]},
    "Markdown": lambda said, before: {"user": [f"- **{said}**\n- _{before}_"]},
    "words hyphenated at line ends": lambda said, before: {"user": [re.sub("([a-z]{3})([a-z]{2})", "\\1-\n\\2", said)]},
    "letters spaced out": lambda said, before: {"user": [" ".join(said)]},
    "look-alike letters": lambda said, before: {"user": [said.translate(_LOOK_ALIKES)]},
    "JSON escapes": lambda said, before: {"user": [json.dumps({"q": said})]},
    "URL": lambda said, before: {"user": [f"https://search.test/?q={quote(said)}"]},
    "comment of code": lambda said, before: {"user": ["\n".join(f"    # {line}" for line in wrap(said, 40)) + "\nx = 1"]},
    "system prompt": lambda said, before: {"system": [said], "user": [before]},
    "answer": lambda said, before: {"user": [before], "assistant": [said]},
    "document": lambda said, before: {"user": [before], "documents": ({"title": before, "text": said},)},
    "tool": lambda said, before: {"user": [before], "tools": ({"type": "function", "function": {"name": "f", "description": said}},)},
    "template option": lambda said, before: {"user": [before], "template_options": {"persona": said}},
    "other numbers": lambda said, before: {"user": [re.sub("[0-9]+", lambda found: str(int(found[0]) + 7), said)]},
    "first half": lambda said, before: {"user": [said[: _middle(said)]]},
}
"""Disguise → what a chat has, from a held-out text and other words."""
SIZES = ((4, LENGTHS[0] - 1), (LENGTHS[0], LENGTHS[1]), (LENGTHS[1] + 14, 150))


def chat(**parts: object) -> Sample:
    """A chat of the texts of each role, in the order in which they are given."""
    turns = tuple(turn(role, said) for role in ("system", "user", "assistant") for said in parts.get(role, ()))  # type: ignore[attr-defined]
    return Sample(turns, **{name: value for name, value in parts.items() if name in ("tools", "documents", "template_options")})  # type: ignore[arg-type]


def leaks(seed: int = SEED, rules: Sequence[str] = ("gpt3",)) -> tuple[dict[str, list[float]], dict[str, int], list[str]]:
    """Recall of each disguise by language and length; how many of as many other texts hold one; and what is missed."""
    found: dict[str, list[float]] = {name: [] for name in DISGUISES}
    false, missed = dict[str, int](), list[str]()
    for language in WORDS:
        chance = random.Random(f"{seed} {language}")
        sets = [[text(chance, language, chance.randint(*size)) for _ in range(OF_EACH)] for size in SIZES]
        held = [said for of_size in sets for said in of_size]
        passages = [Passages.of(RULES[rule], [held]) for rule in rules]

        def found_in(chats: Sequence[Sample], passages: Sequence[Passages] = passages) -> list[set[int]]:
            examples = Examples([*map(str, range(len(chats)))], chats)
            by_rule = [each.leaks(examples) for each in passages]
            return [{leak.text for each in by_rule for leak in each.get(number, ())} for number in range(len(chats))]

        for name, disguise in DISGUISES.items():
            hits = [number in of for number, of in enumerate(found_in([chat(**disguise(said, BEFORE[language])) for said in held]))]
            found[name] += [sum(hits[at : at + OF_EACH]) / OF_EACH for at in range(0, len(hits), OF_EACH)]
            missed += [f"{language}, {name}: {said}" for said, hit in zip(held, hits, strict=True) if not hit]
        others = [text(chance, language, chance.randint(*SIZES[at % 3])) for at in range(len(held))]
        false[language] = sum(map(bool, found_in([chat(user=[BEFORE[language]], assistant=[said]) for said in others])))
    return found, false, missed


def leaks_table(seed: int = SEED) -> str:
    """The table of leaks."""
    found, false, _ = leaks(seed)
    heads = [f"{language}, {size}" for language in WORDS for size in CLASSES]
    lines = [f"| disguise | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    alike: dict[str, list[str]] = {}
    for name, shares in found.items():
        alike.setdefault(" | ".join(f"{share:.2f}" for share in shares), []).append(name)
    lines += [f"| {', '.join(names)} | {shares} |" for shares, names in alike.items()]
    lines.append(f"| other texts: alarms | {' | '.join(f'{false[name]} of {3 * OF_EACH} | | ' for name in WORDS)}|")
    return "\n".join(lines) + "\n"


# Near-duplicates.

CHANGED = (0.01, 0.02, 0.04, 0.06, 0.1, 0.2, 0.4)


def changed(chance: random.Random, said: str, share: float, language: str) -> str:
    """A text with other words in place of that share of its words, at least one; in Chinese and Japanese of its characters."""
    words = said.split(" ") if language == "English" else [*said]
    for at in chance.sample(range(len(words)), max(1, round(share * len(words)))):
        words[at] = chance.choice([word for word in WORDS[language] if word != words[at]])
    return (" " if language == "English" else "").join(words)


def overlap(one: str, other: str) -> float:
    """The Jaccard index of 5-grams of words or characters, exactly."""
    of = [{*zip(*(words[at:] for at in range(5)), strict=False)} for words in (WORD.findall(said.casefold()) for said in (one, other))]
    return len(of[0] & of[1]) / max(1, len(of[0] | of[1]))


def dropped(chats: Sequence[Sample], step: Callable[[], Step] = near_duplicates) -> set[int]:
    """Which chats `near_duplicates` finds."""
    import numpy as np

    at_work = step()
    at_work.judge(Examples([*map(str, range(len(chats)))], chats))
    return {*at_work.finish(np.ones(len(chats), bool)).found}


def duplicates_table(seed: int = SEED) -> str:
    """The table of near-duplicates."""
    lines = ["| changed | " + " | ".join(f"{language}, overlap | found" for language in WORDS) + " |", "|---" * 7 + "|"]
    for share in CHANGED:
        cells = list[str]()
        for language in WORDS:
            chance = random.Random(f"{seed} {language} {share}")
            ones = [text(chance, language, 150 if language == "English" else 300) for _ in range(OF_EACH)]
            others = [changed(chance, said, share, language) for said in ones]
            found = dropped([chat(user=[BEFORE[language]], assistant=[said]) for said in (*ones, *others)])
            alike = sum(overlap(*pair) for pair in zip(ones, others, strict=True)) / OF_EACH
            cells.append(f"{alike:.2f} | {len(found) / OF_EACH:.2f}")
        lines.append(f"| {share:.0%} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def shared(language: str, seed: int = SEED) -> Mapping[str, list[Sample]]:
    """What rows share → different short chats that share it; of the last, each has its own document, beside one of equals."""
    chance = random.Random(f"{seed} {language} shared")
    long, tool = text(chance, language, 200), {"type": "function", "function": {"name": "find", "description": text(chance, language, 100)}}
    short = [[text(chance, language, 12), text(chance, language, 25)] for _ in range(100)]

    def chats(**parts: object) -> list[Sample]:
        return [chat(user=[asked], assistant=[answer], **parts) for asked, answer in short]

    same, documents = short[0], [{"text": text(chance, language, 60)} for _ in range(100)]
    return {
        "nothing": chats(),
        "a system prompt": chats(system=[long]),
        "a system prompt but for its date": [
            chat(system=[f"{long} 2026-05-{day % 28 + 1:02} {day}:00"], user=[asked], assistant=[answer])
            for day, (asked, answer) in enumerate(short)
        ],
        "tools": chats(tools=(tool,)),
        "documents": chats(documents=({"text": long},)),
        "template options": chats(template_options={"persona": long}),
        "all of these": chats(system=[long], tools=(tool,), documents=({"text": long},), template_options={"persona": long}),
        "question and answer, about other documents": [chat(user=[same[0]], assistant=[same[1]], documents=(one,)) for one in documents],
    }


def shared_table(seed: int = SEED) -> str:
    """The table of false drops."""
    lines = ["| 100 chats share | " + " | ".join(WORDS) + " |", "|---" * 4 + "|"]
    counts = {language: {name: len(dropped(chats)) for name, chats in shared(language, seed).items()} for language in WORDS}
    lines += [f"| {name} | {' | '.join(str(counts[language][name]) for language in WORDS)} |" for name in counts["English"]]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--misses", action="store_true")
    parser.add_argument("--seed", type=int, default=SEED, help="other texts by the same rules")
    given = parser.parse_args()
    print(leaks_table(given.seed), duplicates_table(given.seed), shared_table(given.seed), sep="\n")
    if given.misses:
        print(*leaks(given.seed)[2], sep="\n")


if __name__ == "__main__":
    main()
