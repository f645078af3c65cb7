"""Rules about texts with marks, numbers and lists, see `row_rules.py`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from prep_assets.proofs.formats import Format
from prep_assets.proofs.row_rules import Rule, chats, letters, shown, under
from prep_assets.samples import Row

# Texts with marks.


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


def other_question(row: Row, format: Format) -> bool:
    """The first message is another text than the prompt."""
    return bool(under(row, format, "completion_key")[0]["content"].strip() != under(row, format, "prompt_key").strip())


# Numbers.


def no_json(row: Row, format: Format) -> bool | None:
    """A value has no place in JSON: a number that is not finite, a date, bytes. JSON Schema takes 2.0 for an integer."""
    try:
        return None if re.search("[0-9]\\.0(?![0-9])", json.dumps(row, allow_nan=False)) else False
    except (TypeError, ValueError, RecursionError):
        return True


def number(text: str) -> Fraction | None:
    """Return the number that a text is, as people write it; `None` for anything else."""
    plain = re.sub("^([+−-]?)\\$|^\\$([+−-])", r"\1\2", text).replace("−", "-").removesuffix(".")
    grouped = re.fullmatch("[+-]?[0-9]{1,3}(?:,[0-9]{3})+(?:\\.[0-9]+)?", plain)
    plain = plain.replace(",", "") if grouped else plain
    return Fraction(plain) if re.fullmatch("[+-]?(?:[0-9]+(?:\\.[0-9]+)?|\\.[0-9]+)", plain) else None


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


def no_gold(row: Row, format: Format) -> bool:
    """A gold that must be a number is none."""
    gold, verifier = under(row, format, "gold_key"), under(row, format, "verifier_key") or format.options.get("verifier", "number")
    return isinstance(gold, str) and verifier == "number" and number(gold.strip()) is None


def no_gold_answer(row: Row, format: Format) -> bool:
    """A reference answer that must be a number is none."""
    if format.options["verifier"] != "number":
        return False
    answer = under(row, format, "response_key")
    if answer is None:
        answer = shown(chats(row, format)[0][-1], format)
    return number(answer.strip()) is None


_SUM = re.compile("What is (?:\\(([0-9]{1,18}) ([+*-]) ([0-9]{1,18})\\)|([0-9]{1,18})) ([+*-]) ([0-9]{1,18})\\?")
_DOES: Mapping[str, Callable[[Fraction, Fraction], Fraction]] = {"+": Fraction.__add__, "-": Fraction.__sub__, "*": Fraction.__mul__}


def no_sum(row: Row, format: Format) -> bool:
    """The question is no sum."""
    return not _SUM.fullmatch(under(row, format, "prompt_key").strip())


def wrong_sum(row: Row, format: Format) -> bool:
    """The gold is not what the question comes to."""
    asked, gold = _SUM.fullmatch(under(row, format, "prompt_key").strip()), under(row, format, "gold_key")
    if asked is None:
        return False
    first = Fraction(asked[4]) if asked[4] else _DOES[asked[2]](Fraction(asked[1]), Fraction(asked[3]))
    said = number(gold.strip()) if isinstance(gold, str) else Fraction(gold)
    return said is not None and said != _DOES[asked[5]](first, Fraction(asked[6]))


# Lists.


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list) else 1


def uneven(*options: str) -> Rule:
    """Return a rule: the arrays that these options name have different lengths."""

    def rule(row: Row, format: Format) -> bool:
        return len({_length(value) for option in options if (value := under(row, format, option)) is not None}) > 1

    return rule


def group_lengths(row: Row, format: Format) -> bool:
    """A response has no reward, or a reward no response; what is said of each token is said of more or fewer tokens than there are."""
    if uneven("responses_key", "rewards_key", "ranks_key", "token_ids_key")(row, format):
        return True
    ids = [*map(len, under(row, format, "token_ids_key") or ())]
    if any(
        (values := under(row, format, option)) is not None and [*map(len, values)] != ids for option in ("logprobs_key", "sampled_mask_key")
    ):
        return True
    answers = [1 if isinstance(each, str) else letters(each, format).count("a") for each in under(row, format, "responses_key")]
    turns = under(row, format, "turn_rewards_key")
    return turns is not None and [*map(len, turns)] != answers


def no_chance(row: Row, format: Format) -> bool:
    """All log-probabilities of a response of eight tokens or more are 0."""
    return any(len(values) > 7 and not any(values) for values in under(row, format, "logprobs_key") or ())


def rewards_of(row: Row, format: Format) -> list[float]:
    ranks = under(row, format, "ranks_key")
    return [-rank for rank in ranks] if ranks is not None else under(row, format, "rewards_key")


def one_reward(row: Row, format: Format) -> bool | None:
    """All rewards are equal."""
    needed = format.name == "group_pair" or format.options.get("desirable_from") is None
    return needed and len(set(map(float, rewards_of(row, format)))) == 1


def one_response(row: Row, format: Format) -> bool:
    """There is one response, where an order is needed."""
    return len(under(row, format, "responses_key")) < 2 and format.options.get("desirable_from") is None


def near_rewards(row: Row, format: Format) -> bool:
    """The best and the worst reward differ by less than the least margin."""
    rewards, least = rewards_of(row, format), format.options["min_margin"]
    return least is not None and float(max(rewards)) - float(min(rewards)) < least


def tied_rewards(row: Row, format: Format) -> bool:
    """Rewards that decide are equal, and rows with ties are refused."""
    rewards = [*map(float, rewards_of(row, format))]
    if format.options["ties"] != "refuse":
        return False
    if format.name == "group_list":
        return len({*rewards}) < len(rewards)
    return any(rewards.count(extreme) > 1 for extreme in (max(rewards), min(rewards)))


def low_rewards(row: Row, format: Format) -> bool:
    """No reward is as large as the least one."""
    least = format.options["at_least"]
    return least is not None and max(rewards_of(row, format)) < least


def several_turns(row: Row, format: Format) -> bool:
    """A response has several turns."""
    return any(isinstance(each, list) and len(each) > 1 for each in under(row, format, "responses_key"))


def image_or_text(row: Row, format: Format) -> bool:
    """At some position both of image and text stand, or neither."""
    images, texts = (under(row, format, option) for option in ("images_key", "texts_key"))
    return len(images) == len(texts) and any((image is None) == (text is None) for image, text in zip(images, texts, strict=True))


def nothing_interleaved(row: Row, format: Format) -> bool:
    """There is neither an image nor a text with words."""
    return not any(under(row, format, "images_key")) and not any(text and text.strip() for text in under(row, format, "texts_key"))


def several_fields(row: Row, format: Format) -> bool:
    """Two spellings of one field are there."""
    spellings = (("query_key", QUERIES), ("positive_key", POSITIVES))
    return any(format.options[option] is None and sum(row.get(key) is not None for key in keys) > 1 for option, keys in spellings)


QUERIES = ("query", "anchor", "question", "ques")
POSITIVES = ("positive", "positives", "pos", "context_positive", "positive_passages", "positive_ctxs")


# Steps that people rated, and named regions.


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


def _regions(row: Row, format: Format) -> tuple[Sequence[Row], bool]:
    """Return the turns of a semantic data array, and whether they are one document."""
    turns = row[str(format.options["array_key"])]
    return turns, bool(format.options["pretraining"]) or not any("type" in turn for turn in turns)


def uneven_regions(row: Row, format: Format) -> bool:
    """A turn has a list of weights or masks with another number of entries than regions."""
    masks = ("semantic_loss_weight", "semantic_drop_mask", "semantic_attention_mask")
    return any(
        turn.get(mask) is not None and len(turn[mask]) != len(turn["content"]) for turn in _regions(row, format)[0] for mask in masks
    )


def empty_region(row: Row, format: Format) -> bool:
    """A turn of a chat has no regions, or one without a text."""
    turns, document = _regions(row, format)
    texts = [[region[name] for region in turn["content"] for name in region if name != "include_tags"] for turn in turns]
    return not document and any(not each or None in each or "" in each for each in texts)


def blank_regions(row: Row, format: Format) -> bool:
    """A document has nothing but white space."""
    turns, document = _regions(row, format)
    regions = [({**region, "include_tags": ""}, region.get("include_tags")) for turn in turns for region in turn["content"]]
    return document and not any(text and (text.strip() or tagged) for region, tagged in regions for text in region.values())


def mixed_types(row: Row, format: Format) -> bool:
    """Some turns have a type and others have none, or types with and without a template stand together in no pair."""
    turns, document = _regions(row, format)
    types = {turn.get("type") for turn in turns}
    mixed = types & {"prompt", "completion"} and types & {"system", "user", "assistant", "tool"} and not types & {"chosen", "rejected"}
    return not document and (any("type" not in turn for turn in turns) or bool(mixed))
