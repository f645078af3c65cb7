"""Rules about rows that JSON Schema cannot say, and about columns, by the names that definitions in `formats` give them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from prep_assets.proofs.formats import Format
from prep_assets.proofs.row_rules import no_json, number, under
from prep_assets.proofs.source_rows import Walk
from prep_assets.proofs.source_rules import key_of
from prep_assets.proofs.source_texts import CALL, EXACT, REASONING, TEXT, Said
from prep_assets.samples import Row

# Rows that must be rejected.


def belle_turns(row: Row, format: Format) -> bool:
    """The turns are other than (person, assistant)+ with a text each but the last, whose text is the output."""
    marks = [format.options[key] for key in ("human_mark", "assistant_mark")]
    before, *parts = re.split(f"({'|'.join(map(re.escape, marks))})", under(row, format, "instruction_key"))
    texts = [text.strip() for text in parts[1::2]]
    if f"\n{marks[0]}" in under(row, format, "output_key"):
        return True
    return bool(before.strip()) or not texts or texts[-1] != "" or not all(texts[:-1]) or parts[::2] != marks * (len(texts) // 2)


def no_problem(row: Row, format: Format) -> bool:
    """Nothing stands before the first fence."""
    return not under(row, format, "problem_key").split("```")[0].strip()


def more_problem(row: Row, format: Format) -> bool:
    """Text stands behind the code of a problem."""
    return bool("".join(under(row, format, "problem_key").split("```")[2:]).strip())


def _solution(row: Row, format: Format) -> list[str]:
    """Return what stands before and behind each ``####`` of a worked answer; notes of a calculator are left out of an answer to train."""
    answer = under(row, format, "answer_key")
    return (re.sub("<<[^>]*>>", "", answer) if format.name == "gsm8k" else answer).split("####")


def no_mark(row: Row, format: Format) -> bool:
    """A worked answer has no ``####``."""
    return len(_solution(row, format)) < 2


def no_number(row: Row, format: Format) -> bool:
    """What stands behind ``####`` is not one number."""
    parts = _solution(row, format)
    return len(parts) > 2 or (len(parts) > 1 and (len(parts[1].strip().splitlines()) > 1 or number(parts[1].strip()) is None))


def no_solution(row: Row, format: Format) -> bool:
    """Nothing stands before ``####``."""
    return not _solution(row, format)[0].strip()


def _rated(row: Row) -> Iterator[tuple[int, Row]]:
    """Yield the steps of PRM800K and the number of the completion that counts, up to the first step without a chosen one."""
    for step in row["label"]["steps"]:
        chosen = step.get("chosen_completion")
        yield chosen or 0, step
        if chosen is None:
            return


def unrated_step(row: Row, format: Format) -> bool:
    """A person wrote a step, or the completion that counts has no rating."""
    return any(
        (step.get("chosen_completion") is None and step.get("human_completion") is not None)
        or step["completions"][at].get("rating") is None
        for at, step in _rated(row)
    )


def no_such_completion(row: Row, format: Format) -> bool:
    """A step chooses a completion that it does not have."""
    return any(not 0 <= at < len(step["completions"]) for at, step in _rated(row))


def _sides(row: Row, format: Format) -> list[Any]:
    return [under(row, format, option) for option in ("chosen_key", "rejected_key")]


def _answers(row: Row, format: Format) -> list[tuple[str, str]]:
    """Return whose the last message of each side is, and what it says; where no side is named, of the completions that score most and least."""
    sides = _sides(row, format)
    if sides[0] is None:
        listed = under(row, format, "completions_key")
        return [("assistant", pick(listed, key=_score)["response"].strip()) for pick in (max, min)]
    return [(side[-1]["role"], side[-1]["content"].strip()) for side in sides]


def ultra_last(row: Row, format: Format) -> bool:
    """A side ends with an empty message, or with another's than the assistant."""
    return any(role != "assistant" or not text for role, text in _answers(row, format))


def ultra_prompts(row: Row, format: Format) -> bool | None:
    """A side has other messages before its answer than the prompt."""
    sides, prompt = _sides(row, format), under(row, format, "prompt_key")
    if sides[0] is None or format.options["prompt_check"] != "strict":
        return None
    return any([(each["role"], each["content"].strip()) for each in side[:-1]] != [("user", prompt.strip())] for side in sides)


def ultra_equal(row: Row, format: Format) -> bool:
    """Both sides end with the same text."""
    (_, chosen), (_, rejected) = _answers(row, format)
    return chosen == rejected


def ultra_margin(row: Row, format: Format) -> bool | None:
    """The scores of both sides are nearer to each other than the least margin."""
    least = format.options["min_margin"]
    if _sides(row, format)[0] is None:
        scores = sorted(each["overall_score"] for each in under(row, format, "completions_key"))
        return bool(scores[-1] == scores[0] or scores[-1] - scores[0] < (least or 0))
    return least is not None and row["score_chosen"] - row["score_rejected"] < least


def ultra_types(row: Row, format: Format) -> bool | None:
    """A rating is no number, neither as text nor as itself; `None` where a value has no place in JSON."""
    wrong = any(None in ratings for _, ratings in _rated_answers(row, format))
    return True if wrong else False if no_json(row, format) is False else None


def ultra_scores(row: Row, format: Format) -> bool:
    """Scores contradict each other: those of both sides, a side's and that of the completion with its text, or the best score and bad ratings."""
    scores = dict[str, float]()
    for answer, ratings in _rated_answers(row, format):
        scores[answer["response"].strip()] = score = _score(answer)
        mean = answer.get("fine-grained_score")
        if mean is None and ratings:
            mean = sum(rating or 0.0 for rating in ratings) / len(ratings)
        if mean is not None and score >= 10 and mean <= 2:
            return True
    if _sides(row, format)[0] is None:
        return False
    listed: list[Any] = [scores.get(text) for _, text in _answers(row, format)]
    own: list[Any] = [row.get(name) for name in ("score_chosen", "score_rejected")]
    turned = any(None not in pair and pair[0] < pair[1] for pair in (listed, own))
    return turned or any(None not in pair and pair[0] != pair[1] for pair in zip(listed, own, strict=True))


def _rated_answers(row: Row, format: Format) -> Iterator[tuple[Row, list[float | None]]]:
    """Yield the completions of a row, each with its ratings, `None` for what is no number; those left out are not among them."""
    for answer in under(row, format, "completions_key") or ():
        ratings = [each.get("Rating") for each in (answer.get("annotations") or {}).values()]
        yield answer, [_rating(each) for each in ratings if each not in (None, "", "N/A")]


def _rating(value: Any) -> float | None:
    try:
        return None if isinstance(value, bool) or not math.isfinite(float(value)) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None


# What becomes of a column.


def final(walk: Walk, value: Any, role: str, path: str) -> None:
    """All that stands behind ``####`` is the gold; what stands before it is no part of a prompt."""
    walk.said.append(Said(path, role, walk.turn, EXACT, json.dumps(re.sub(r"<<[^>]*>>", "", value).partition("####")[2].strip())))


def before_code(walk: Walk, value: Any, role: str, path: str) -> None:
    """The text before a block of code, which stands in another column."""
    walk.say(value.partition("```")[0], role, path)
    walk.turn += 1


def answer(walk: Walk, value: Any, role: str, path: str) -> None:
    """Messages that end with the answer; where the prompt's column counts alone, the answer alone."""
    walk.chat(value[-1:] if walk.options.get("prompt_check") == "column" else value, role, path)


def _score(completion: Row) -> float:
    return float(completion["overall_score"])


def rated(walk: Walk, value: Any, role: str, path: str) -> None:
    """Completions with scores: where no answer is named, the one that scores most is chosen, the one that scores least is rejected."""
    if walk.row.get(key_of(walk, "chosen")) is not None or not value:
        return
    for whose, each in (("chosen", max(value, key=_score)), ("rejected", min(value, key=_score))):
        walk.say(each["response"], whose, path)
        walk.turn += 1


def joined(walk: Walk, value: Any, role: str, path: str) -> None:
    """Steps of one response."""
    for step in value:
        walk.say(step, "responses[0]", path)


def shepherd(walk: Walk, value: str, role: str, path: str) -> None:
    """A question, and steps behind ``Step 1:``, each with a tag at its end."""
    question, first, steps = value.partition("Step 1:")
    walk.say(question, role, path)
    walk.turn += 1
    joined(walk, (first + steps).split(str(walk.options.get("tag", "ки"))), role, path)


def rated_steps(walk: Walk, value: Row, role: str, path: str) -> None:
    """Of each step the completion that was chosen; the first one of a step in which none was, which is the last."""
    steps = list[str]()
    for step in value["steps"]:
        chosen = step.get("chosen_completion")
        steps.append(step["completions"][chosen or 0]["text"])
        if chosen is None:
            break
    joined(walk, steps, role, f"{path}.steps")


def moss(walk: Walk, value: Row, role: str, path: str) -> None:
    """Exchanges of MOSS without its marks; what it thinks and what its tools say only with ``plugins``."""
    fields = {"Human": ("<|Human|>: ", "<eoh>"), "Inner Thoughts": ("<|Inner Thoughts|>:", "<eot>"), "Commands": ("<|Commands|>:", "<eoc>")}
    fields |= {"Tool Responses": ("<|Results|>:", "<eor>"), "MOSS": ("<|MOSS|>:", "<eom>")}
    for exchange in value.values():
        said = {name: exchange[name].replace(a, "").replace(b, "").strip() for name, (a, b) in fields.items() if exchange.get(name)}
        called = re.findall(r'(Search|Calculate|Solve|Text2Image)\("((?:[^"\\]|\\.)*)"\)', said.get("Commands", ""), re.DOTALL)
        if not said:
            continue
        for name, (whose, kind) in _OF_MOSS.items():
            if name not in ("Human", "MOSS") and not walk.options.get("plugins"):
                continue
            if name == "Commands":
                for call in called:
                    for leaf in call:
                        walk.say(leaf, whose, f"{path}.{name}", kind=kind)
            elif (name != "Tool Responses" or called) and (name in ("Human", "MOSS", "Tool Responses") or said.get(name) != "None"):
                walk.say(said.get(name, ""), whose, f"{path}.{name}", kind=kind)
            walk.turn += name in ("Human", "Tool Responses", "MOSS") or (name == "Commands" and bool(called))


_OF_MOSS = {
    "Human": ("user", TEXT),
    "Inner Thoughts": ("assistant", REASONING),
    "Commands": ("assistant", CALL),
    "Tool Responses": ("tool", TEXT),
    "MOSS": ("assistant", TEXT),
}
