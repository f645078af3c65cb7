"""``contrastive``: a query with its positive and negative texts, as sentence-transformers, FlagEmbedding, DPR and Cerebras write them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from prep_assets.errors import ConfigError, Refused
from prep_assets.samples import Contrast, Row
from prep_assets.schemas.fields import as_list, as_mapping, as_number, as_text, needed, value_at
from prep_assets.schemas.registry import Convert, schema

QUERIES = ("query", "anchor", "question", "ques")
POSITIVES = ("positive", "positives", "pos", "context_positive", "positive_passages", "positive_ctxs")
NEGATIVES = (
    "negative",
    "negatives",
    "neg",
    "context_negative",
    "hard_negatives",
    "negative_passages",
    "negative_ctxs",
    "hard_negative_ctxs",
)
NUMBERED = re.compile(r"negative_\d+")


@schema("contrastive", gives=Contrast, example={"query": "What is 2 + 2?", "pos": ["It is 4."], "neg": ["It is 5.", "Blue."]})
def contrastive(
    *, query_key: str | None = None, positive_key: str | None = None, negative_key: str | None = None, instruction_key: str = "prompt"
) -> Convert:
    """A query, texts that answer it, and texts that do not; each side is one text, or an array of texts or of passages with a title.

    Options:
        query_key: the query; null: any of its spellings.
        positive_key: texts that answer it; null: likewise.
        negative_key: texts that do not, if any; null: likewise.
        instruction_key: the instruction that FlagEmbedding puts before queries.
    """
    if len({query_key, positive_key, negative_key} - {None}) != sum(key is not None for key in (query_key, positive_key, negative_key)):
        raise ConfigError("query_key, positive_key and negative_key name one field twice")

    def convert(row: Row) -> Contrast:
        _, query = _only_field(row, [query_key] if query_key else QUERIES)
        positive, positives = _only_field(row, [positive_key] if positive_key else POSITIVES)
        texts = _as_texts(positives, positive)
        if not texts:
            raise Refused("empty_positive", f"{positive!r} has no text")
        negatives = tuple(text for key in _negative_keys(row, negative_key) for text in _as_texts(row[key], key))
        instruction = None if row.get(instruction_key) is None else as_text(row[instruction_key], instruction_key)
        scores = (_scores(row, "pos_scores", len(texts)), _scores(row, "neg_scores", len(negatives)))
        return Contrast(needed(as_text(query, "query"), "empty_query", "query"), texts, negatives, None, instruction or None, *scores)

    return convert


def _only_field(row: Row, keys: Sequence[str]) -> tuple[str, Any]:
    """The one of `keys` that a row has, and its value. A row with two of them is rejected: it does not say which is meant."""
    present = [key for key in keys if key in row and row[key] is not None]
    if len(present) > 1:
        raise Refused("conflicting_fields", f"both {present[0]!r} and {present[1]!r} are there; name one of them in the options")
    key = present[0] if present else keys[0]
    return key, value_at(row, key)


def _negative_keys(row: Row, key: str | None) -> list[str]:
    if key is not None:
        return [key] if row.get(key) is not None else []
    named = [column for column in NEGATIVES if column in row and row[column] is not None]
    numbered = sorted((column for column in row if NUMBERED.fullmatch(column)), key=lambda column: int(column.rpartition("_")[2]))
    return [*named, *(column for column in numbered if row[column] is not None)]


def _as_texts(value: object, where: str) -> tuple[str, ...]:
    values: Sequence[Any] = as_list(value, where) if isinstance(value, list | tuple) else [value]
    texts = []
    for index, text in enumerate(values):
        place = f"{where}[{index}]"
        if isinstance(text, Mapping):
            text = _passage_text(text, place)
        texts.append(needed(as_text(text, place), "empty_text", place))
    return tuple(texts)


def _passage_text(value: Mapping[str, Any], where: str) -> str:
    """The text of a passage of DPR or Tevatron: its title, a line break, its text."""
    title, text = as_mapping(value, where).get("title"), value_at(value, "text", where)
    for key in ("docid", "passage_id", "psg_id"):
        value.get(key)  # names the passage
    return f"{as_text(title, where)}\n{as_text(text, where)}" if title else as_text(text, where)


def _scores(row: Row, key: str, texts: int) -> tuple[float, ...]:
    if row.get(key) is None:
        return ()
    scores = tuple(as_number(score, f"{key}[{number}]") for number, score in enumerate(as_list(row[key], key)))
    if len(scores) != texts:
        raise Refused("length_mismatch", f"{key!r} has {len(scores)} scores for {texts} texts")
    return scores
