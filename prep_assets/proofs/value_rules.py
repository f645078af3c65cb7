"""Rules about texts with marks, numbers and lists, see `row_rules.py`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

from prep_assets.proofs.formats import Format
from prep_assets.proofs.row_rules import Rule, chats, letters, once, parts_of_row, shown, under
from prep_assets.proofs.source_fields import WEIGHTS
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


# Rows of token ids, value by value.


class _Tokens(NamedTuple):
    """Ids of a row, which of them its masks train, its labels and its attention mask; `None` for what it does not have."""

    ids: list[int]
    trained: list[bool] | None
    labels: list[int] | None
    attention: list[int] | None
    uneven: bool


@once
def _tokens(row: Row, format: Format) -> _Tokens:
    ids, prompt, completion, labels = (under(row, format, f"{each}_key") for each in ("ids", "prompt_ids", "completion_ids", "labels"))
    masks = [row[key] for key in format.options["mask_keys"] if row.get(key) is not None]
    if ids is None and completion is not None:
        ids, before = [*prompt, *completion], [0] * len(prompt)
        masks = [before + [1] * len(completion), *(before + mask if len(mask) == len(completion) else mask for mask in masks)]
    attention = None if "attention_mask" in format.options["mask_keys"] else row.get("attention_mask")
    uneven = any(each is not None and len(each) != len(ids) for each in (*masks, labels, attention))
    return _Tokens(ids, [*map(all, zip(*masks, strict=False))] if masks else None, labels, attention, uneven)


def uneven_tokens(row: Row, format: Format) -> bool:
    """A mask or labels are of more or fewer tokens than there are ids."""
    return _tokens(row, format).uneven


def no_mask(row: Row, format: Format) -> bool:
    """Neither masks nor labels say which tokens are trained."""
    tokens = _tokens(row, format)
    return tokens.trained is None and tokens.labels is None


def masks_disagree(row: Row, format: Format) -> bool:
    """Masks and labels train different tokens, unless labels are of all; or the chat beside them has weights."""
    _, trained, labels, _, uneven = _tokens(row, format)
    by_label = [label != -100 for label in labels or ()]
    weighed = any(each.get(key) is not None for each in parts_of_row(row, format)[1:] for key in WEIGHTS)
    return weighed or (trained is not None and labels is not None and trained != by_label and not all(by_label) and not uneven)


@once
def _wrong_labels(row: Row, format: Format) -> tuple[bool, bool]:
    """Return whether a trained token has another label than its id, and whether each has that of the next one."""
    ids, trained, labels, attention, uneven = _tokens(row, format)
    if labels is None or uneven:
        return False, False
    trained = [label != -100 for label in labels] if trained is None else trained
    shown = [*zip(ids, labels, trained, attention or [1] * len(ids), strict=True)]
    shown = [each for each in shown if each[-1]]
    by = int(format.options["shifted"])
    right = [shown[at][1] == shown[at + by][0] for at in range(len(shown) - by) if shown[at][2]]
    ahead = [first[1] == second[0] for first, second in pairwise(shown) if first[2]]
    return not all(right), not by and bool(ahead) and all(ahead)


def labels_differ(row: Row, format: Format) -> bool:
    """A trained token has the label of another one."""
    return _wrong_labels(row, format) == (True, False)


def labels_shifted(row: Row, format: Format) -> bool:
    """Labels are those of the next token, and the options do not say so."""
    return _wrong_labels(row, format) == (True, True)


def all_hidden(row: Row, format: Format) -> bool:
    """The attention mask hides all tokens."""
    attention = _tokens(row, format).attention
    return attention is not None and not any(attention)


def attention_hole(row: Row, format: Format) -> bool:
    """The attention mask hides a token between others."""
    attention = _tokens(row, format).attention
    return attention is not None and "0" in "".join(map(str, attention)).strip("0")


def trained_padding(row: Row, format: Format) -> bool:
    """A token is trained that the attention mask hides."""
    _, trained, labels, attention, _ = _tokens(row, format)
    by = [label != -100 for label in labels or ()] if trained is None else trained
    return attention is not None and any(train and not shown for train, shown in zip(by, attention, strict=False))


def several_examples(row: Row, format: Format) -> bool:
    """A row holds several examples, as lengths, positions or numbers in its attention mask say."""
    positions, attention = row.get("position_ids"), _tokens(row, format).attention
    return len(row.get("seq_lengths") or ()) > 1 or (positions or []) != [*range(len(positions or ()))] or max(attention or [0]) > 1


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
