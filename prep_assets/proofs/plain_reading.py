"""Plain rows of data sets with a known layout, read in the most obvious way: a second opinion on their schemas.

Only rows of plain text are read, for schemas without options. Everything else gives `None`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import Any

from prep_assets.samples import Row

Texts = dict[str, str]
Turns = tuple[tuple[str, ...], tuple[str, ...]]
_ROLES = {"prompt": "user", "chosen": "assistant", "rejected": "assistant"}
"""Column of a pair → role of its speaker."""
_ANSWERS = ("chosen", "rejected")
_ANSWER, _HUMAN = "\n\nAssistant:", "\n\nHuman:"


def plain_texts(row: Row, schema: str, options: Row) -> Texts | None:
    """Return the texts of a row by column of its line: prompt and answers."""
    if options or schema not in _READERS or any(row.get(key) for key in _MORE):
        return None
    return _READERS[schema](row)


_MORE = ("system", "history", "tools", "documents", "chat_template_kwargs")
"""Fields of a prompt or a pair that hold more than its texts."""


def _dialogues(row: Row) -> Texts:
    sides = {side: str(row[side]).rsplit(_ANSWER, 1) for side in _ANSWERS}
    return {"prompt": sides["chosen"][0].strip(), **{side: parts[-1].strip() for side, parts in sides.items()}}


def _rated(row: Row) -> Texts | None:
    if not row.get("chosen"):
        scores = [completion["overall_score"] for completion in row["completions"]]
        asked = row["instruction"] if row.get("prompt") is None else row["prompt"]
        best, worst = (row["completions"][scores.index(score)]["response"].strip() for score in (max(scores), min(scores)))
        return {"prompt": asked.strip(), "chosen": best, "rejected": worst}
    sides = {side: row[side][-1] for side in _ANSWERS}
    if any(message.keys() != {"role", "content"} for message in sides.values()):
        return None
    return {"prompt": row["prompt"].strip(), **{side: message["content"].strip() for side, message in sides.items()}}


def _strings(row: Row, *columns: str) -> Texts | None:
    """Return the columns of a row unchanged; `None` where one is no string."""
    return {key: row[key] for key in columns} if all(isinstance(row.get(key), str) for key in columns) else None


_READERS: Mapping[str, Callable[[Row], Texts | None]] = {
    "hh": _dialogues,
    "ultrafeedback": _rated,
    "preference": lambda row: _strings(row, *_ROLES),
    **dict.fromkeys(("gsm8k", "gsm8k_prompt"), lambda row: {"prompt": row["question"].strip()}),
    "rl_prompt": lambda row: _strings(row, "prompt"),
}


def pair_line(row: Row, texts: Mapping[str, str], schema: str, form: str, tags: Iterable[str]) -> dict[str, Any] | None:
    """Return the whole line of a pair of two different answers to a user, none blank; `None` for any other, and where a text holds one of the `tags`.

    Args:
        row: strings, without ignored columns.
        texts: its texts, see `plain_texts`.
        form: ``text`` or ``messages``.
    """
    columns = {"preference": {*_ROLES}, "hh": {*_ANSWERS}}
    if schema not in columns or row.keys() != columns[schema] or any(not isinstance(value, str) for value in row.values()):
        return None
    if schema == "hh" and {row[side].rpartition(_ANSWER)[0].strip() for side in _ANSWERS} != {texts["prompt"]}:
        return None
    if schema == "hh" and any(_HUMAN in row[side].rpartition(_ANSWER)[2] for side in _ANSWERS):
        return None
    all_texts = [*texts.values()]
    if texts["chosen"] == texts["rejected"] or not all(map(str.strip, all_texts)) or any(tag in text for tag in tags for text in all_texts):
        return None
    return dict(texts) if form == "text" else {key: [{"role": _ROLES[key], "content": text}] for key, text in texts.items()}


RANKINGS = ("group_list", "group_kto")


def ranking_lines(row: Row, schema: str, options: Row, form: str, tags: Iterable[str]) -> Row | list[Row] | None:
    """Return the line of a list, or the lines of labelled answers, of a row of strings alone; `None` for any other. Of a list it sorts pairs of reward and
    place; of labels it compares each reward, as the decimal that the row writes, with the mean of all."""
    answers, ranked = options.get("responses_key", "responses"), options.get("ranks_key")
    scores, asked = ranked or options.get("rewards_key", "rewards"), options.get("prompt_key", "prompt")
    if row.keys() != {asked, answers, scores} or options.get("marked_prompt") or not isinstance(row[asked], str):
        return None
    texts, numbers = row[answers], row[scores]
    if not all(isinstance(text, str) and text.strip() for text in (row[asked], *texts)) or any(
        tag in text for tag in tags for text in (row[asked], *texts)
    ):
        return None
    rewards = [-float(number) if ranked else float(number) for number in numbers]

    def said(text: str, role: str) -> Any:
        return text if form == "text" else [{"role": role, "content": text}]

    prompt = said(row[asked], "user")
    if schema == "group_list":
        order = sorted((-reward, place) for place, reward in enumerate(rewards))
        return {
            "prompt": prompt,
            "responses": [said(texts[place], "assistant") for _, place in order],
            "rewards": [-reward for reward, _ in order],
        }
    least, exact = options.get("desirable_from"), [Fraction(str(reward)) for reward in rewards]
    border = sum(exact) / len(exact) if least is None else Fraction(str(least))
    labelled = [(text, reward >= border) for text, reward in zip(texts, exact, strict=True) if least is not None or reward != border]
    return [{"prompt": prompt, "completion": said(text, "assistant"), "label": label} for text, label in labelled]


PLAIN_PAIR = {*_ROLES, "margin"}
"""Columns of a pair whose turns are all that a model sees."""


def plain_turns(value: Any, role_key: str = "role", content_key: str = "content", *, role: str = "") -> Turns | None:
    """Return roles and texts of a string, which has the role `role`, or of messages with two fields each; `None` for any other value, or a blank text."""
    if isinstance(value, str):
        return ((role,), (value,)) if value.strip() else None
    if not isinstance(value, list) or {*map(type, value)} != {dict} or {*map(len, value)} != {2}:
        return None
    roles, texts = (tuple([message.get(key) for message in value]) for key in (role_key, content_key))
    return (roles, texts) if {*map(type, roles + texts)} == {str} and all(map(str.strip, texts)) else None


def turns_of_rows(values: Sequence[Any], role_key: str, content_key: str) -> Sequence[Turns | None]:
    """`plain_turns` of each value; of a block in which all are plain messages at once."""
    try:
        messages = [message for value in values for message in value]
        roles, texts = ([message[key] for message in messages] for key in (role_key, content_key))
    except (KeyError, TypeError, IndexError):
        messages = []
    alike = {*map(type, values)} == {list} and all(values) and {*map(type, messages)} == {dict} and {*map(len, messages)} == {2}
    if not alike or {*map(type, roles), *map(type, texts)} != {str} or not all(map(str.strip, texts)):
        return [plain_turns(value, role_key, content_key) for value in values]
    ends = accumulate(map(len, values), initial=0)
    return [(tuple(roles[start:end]), tuple(texts[start:end])) for start, end in pairwise(ends)]


def as_text(value: Any) -> str | None:
    """Return a string, strings joined by line breaks, or the content of a single plain message; `None` for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(element, str) for element in value):
        return "\n".join(value)
    plain = isinstance(value, list) and len(value) == 1 and value[0].keys() == {"role", "content"}
    return value[0]["content"] if plain else None
