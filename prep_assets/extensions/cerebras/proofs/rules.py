"""Rules about rows that JSON Schema cannot say, and about columns, by the names that definitions in `formats` give them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from prep_assets.proofs.formats import Format, definition_of
from prep_assets.proofs.row_rules import Rule, chats, letters, no_json, under
from prep_assets.proofs.source_rows import Walk
from prep_assets.proofs.source_rules import key_of, text
from prep_assets.proofs.source_texts import ANYWHERE, TEXT, Said
from prep_assets.samples import Row

# Rows that must be rejected.


def other_question(row: Row, format: Format) -> bool:
    """The first message is another text than the prompt."""
    return bool(under(row, format, "completion_key")[0]["content"].strip() != under(row, format, "prompt_key").strip())


def image_or_text(row: Row, format: Format) -> bool:
    """At some position both of image and text stand, or neither."""
    images, texts = (under(row, format, option) for option in ("images_key", "texts_key"))
    return len(images) == len(texts) and any((image is None) == (text is None) for image, text in zip(images, texts, strict=True))


def nothing_interleaved(row: Row, format: Format) -> bool:
    """There is neither an image nor a text with words."""
    return not any(under(row, format, "images_key")) and not any(text and text.strip() for text in under(row, format, "texts_key"))


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


def region_types(row: Row, format: Format) -> bool | None:
    """Nothing but what the definition rejects; it does not say what lists hold in a document, where those of an empty region count for nothing."""
    turns, document = _regions(row, format)
    weights = [each for turn in turns for each in turn.get("semantic_loss_weight") or ()]
    flags = [each for turn in turns for mask in ("semantic_drop_mask", "semantic_attention_mask") for each in turn.get(mask) or ()]
    sound = all(each is None or isinstance(each, int | float) for each in weights) and all(type(each) is bool for each in flags)
    return False if (sound or not document) and no_json(row, format) is False else None


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


def llava_places(row: Row, format: Format) -> bool:
    """Marks of images stand elsewhere than in questions, are several of one image, or as many as the images are not."""
    image, mark = under(row, format, "image_key"), format.options["image_token"]
    counts = [
        (role, message[format.options["content_key"]].count(mark))
        for chat in chats(row, format)
        for message, role in zip(chat, letters(chat, format), strict=True)
    ]
    if any(count and role != "u" for role, count in counts):
        return True
    placed = sum(count for _, count in counts)
    if isinstance(image, list):
        return bool(placed != len(image))
    return any(count > 1 for _, count in counts) or bool(placed) != (image is not None)


_LOWER = str.maketrans(ascii_uppercase + "ſKİı", ascii_lowercase + "skii")
"""A letter for a letter, as regular expressions take upper and lower case of ASCII to be the same."""


def _end_of_prompt(row: Row, format: Format) -> int | None:
    """Where the prompt ends in the better of two texts: behind the last mark of an answer, in upper or lower case. -1 where there is none."""
    better, mark = under(row, format, "chosen_key"), format.options["assistant_role"]
    if not isinstance(better, str) or under(row, format, "prompt_key") is not None or not mark.isascii():
        return None
    text = better.translate(_LOWER)
    return text.rfind(mark.lower()) + len(mark) if mark.lower() in text else -1


def dpo_is(reason: str) -> Rule:
    """Return a rule: two texts have no mark of an answer, differ before it, or have an answer that is empty, that of the other, or holds a person's turn.
    Nobody can tell of messages."""

    def rule(row: Row, format: Format) -> bool | None:
        prompt, better, worse = (under(row, format, f"{side}_key") for side in ("prompt", "chosen", "rejected"))
        found, end = set[str](), _end_of_prompt(row, format)
        if not isinstance(better, str) or not isinstance(worse, str) or (end is None and not isinstance(prompt, str)):
            return None
        if end is not None:
            if end < 0 or better[:end] != worse[:end]:
                return reason == ("no_assistant_turn" if end < 0 else "prompts_differ")
            prompt, better, worse = better[:end], better[end:], worse[end:]
            found |= {"role_order"} if "\n\nHuman:" in f"{better}\0{worse}" else set()
        found |= {"empty_prompt"} if not prompt.strip() else set()
        found |= set() if better.strip() and worse.strip() else {"empty_answer"}
        found |= {"equal_answers"} if better.strip() == worse.strip() else set()
        return reason in found

    return rule


_AROUND = re.compile(r"<\|(?:begin|end)_of_text\|>")
_ROLES = ("system", "developer", "user", "assistant", "tool", "function", "ipython")


def rendered_is(reason: str) -> Rule:
    """Return a rule: a rendered chat has text outside of its turns, a role that is none, an answer of nothing, or no answer."""

    def rule(row: Row, format: Format) -> bool | None:
        before, *turns = under(row, format, "text_key").split("<|start_header_id|>")
        found, roles, outside = set[str](), list[str](), [_AROUND.sub("", before)]
        for turn in turns:
            role, opened, text = turn.partition("<|end_header_id|>\n\n")
            said, *rest = re.split(r"<\|eo[tm]_id\|>", text)
            if not opened or not rest:
                return None  # the next turn may be part of it
            outside += rest
            roles.append(role.strip())
            found |= {"empty_answer"} if roles[-1] == "assistant" and not said.strip() else set()
        outside[-1] = _AROUND.sub("", outside[-1])
        found |= {"unknown_role"} if {*roles} - {*_ROLES} else set()
        found |= {"leftover_text"} if any(map(str.strip, outside)) else set()
        return reason in (found if "assistant" in roles else {*found, "no_assistant_turn"})

    return rule


# What becomes of a column.


def common(walk: Walk, value: str, role: str, path: str) -> None:
    """Words, each with the white space before it: common ones are not trained, all others are."""
    words = walk.options.get("words", definition_of("common_words_mask")["x-options"]["words"])
    for is_common, run in groupby(re.split(r"(?<=\S)(?=\s)", value), key=lambda word: word.strip() in words):
        walk.say("".join(run), role, path, weight=float(not is_common))


def second(walk: Walk, value: Any, role: str, path: str) -> None:
    """The second message is the answer, the first repeats the prompt; later ones are refused or left out."""
    common(walk, value[1]["content"], role, path)


def cut(walk: Walk, value: Any, role: str, path: str) -> None:
    """An answer; without a prompt a text that is cut behind its last mark of an assistant."""
    if not isinstance(value, str) or walk.options.get("prompt_key") is not None:
        text(walk, value, role, path)
        return
    marks = list(
        re.finditer(re.escape(walk.options.get("assistant_role", "assistant:")), str(walk.row[key_of(walk, "chosen")]), re.IGNORECASE)
    )
    for piece in (value[: marks[-1].end()], value[marks[-1].end() :]):
        walk.say(piece, role, path)
        walk.turn += 1


def beside_files(walk: Walk, value: Sequence[Row], role: str, path: str) -> None:
    """Messages; with ``phase: 1`` the text beside an image is left out."""
    mark = walk.options.get("image_token", "<image>")
    for message in value:
        content = next((message[key] for key in walk.reading.content_keys if message.get(key) is not None), "")
        if walk.options.get("phase") != 1 or mark not in content:
            walk.message(message, role, path)
        walk.turn += 1


def headers(walk: Walk, value: str, role: str, path: str) -> None:
    """A chat that Llama 3's template wrote: its control tokens and roles are left out."""
    for whose, content in re.findall(r"<\|start_header_id\|>(.*?)<\|end_header_id\|>\n\n(.*?)<\|(?:eot|eom)_id\|>", value, re.DOTALL):
        walk.say(content, walk._role({"role": whose.strip()}), path)
        walk.turn += 1


def _stated(walk: Walk, turn: Row, field: str, name: str, number: int) -> Any:
    """What a turn, or else an option, says of a region; `None` where neither does."""
    return (walk.options.get(field) or {}).get(name) if turn.get(field) is None else turn[field][number]


def regions(walk: Walk, value: Sequence[Row], role: str, path: str) -> None:
    """Cerebras' arrays: regions by name, with weights by region, of which those that are dropped are left out."""
    sides = {"chosen": "chosen", "rejected": "rejected"} if any(turn.get("type") == "chosen" for turn in value) else {}
    document = walk.options.get("pretraining") or not any("type" in turn for turn in value)
    for turn in value:
        kind, content = turn.get("type", "document"), turn["content"]
        for number, region in enumerate(content):
            [name] = [key for key in region if key != "include_tags"]
            weight, dropped, attended = (
                _stated(walk, turn, f"semantic_{field}", name, number) for field in ("loss_weight", "drop_mask", "attention_mask")
            )
            opening, closing = (f"<|{name}|>",) * 2 if document else (f"<{name}>", f"</{name}>")
            texts = [region[name]] if not region.get("include_tags") else [f"{opening}{region[name]}{closing}"]
            if name == "image":  # whose text is a path
                texts = [opening, closing] if region.get("include_tags") else []
            if region[name] and texts and not dropped:
                whose = sides.get(kind) or {"assistant": "assistant", "completion": "assistant", "system": "system"}.get(kind, "user")
                spoken = "assistant" if kind in sides else kind if kind in ("prompt", "completion", "document") else whose
                where, its_kind = sides.get(kind, walk.prompt), ANYWHERE if whose == "system" else TEXT
                if attended == 0 or (weight is None and name == "image"):
                    weight = 0
                own = None if weight is None else float(weight)
                walk.said += [Said(path, where, walk.turn, its_kind, said, own, spoken) for said in texts]
        walk.turn += 1
