"""``contrastive``: a query with its positive and negative texts, as sentence-transformers, FlagEmbedding, DPR and Cerebras write them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from prep_assets.errors import ConfigError, Refused
from prep_assets.samples import Contrast
from prep_assets.schemas.embedding import text_to_embed
from prep_assets.schemas.fields import as_list, as_mapping, as_number, as_text, needed, value_at, wrong_type
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
SCORES = {"pos_scores": "positive_scores", "neg_scores": "negative_scores"}


@schema("contrastive", gives=Contrast, example={"query": "What is 2 + 2?", "pos": ["It is 4."], "neg": ["It is 5.", "Blue."]})
def contrastive(
    *,
    query_key: str | None = None,
    positive_key: str | None = None,
    negative_key: str | None = None,
    instruction_key: str = "prompt",
) -> Convert:
    """A query, texts that answer it, and texts that do not; each side is one text, or an array of texts or of passages with a title.

    Options:
        query_key: field with the query; null: the one of ``query``, ``anchor``, ``question`` and ``ques`` that a row has.
        positive_key: field with what belongs to it; null: any of the spellings of sentence-transformers, FlagEmbedding, DPR and Cerebras.
        negative_key: field with what does not; null: likewise, and ``negative_1``, ``negative_2`` and so on. A row may have none.
        instruction_key: field with what queries are asked for, which FlagEmbedding puts before them.
    """
    if len({query_key, positive_key, negative_key} - {None}) != sum(key is not None for key in (query_key, positive_key, negative_key)):
        raise ConfigError("query_key, positive_key and negative_key name one field twice")

    def convert(row: Mapping[str, Any]) -> Contrast:
        _, query = _one(row, [query_key] if query_key else QUERIES)
        positive, positives = _one(row, [positive_key] if positive_key else POSITIVES)
        texts = _texts(positives, positive)
        if not texts:
            raise Refused("empty_positive", f"{positive!r} has no text")
        negatives = tuple(text for key in _negative_keys(row, negative_key) for text in _texts(row[key], key))
        instruction = None if row.get(instruction_key) is None else as_text(row[instruction_key], instruction_key)
        scores = {ours: _scores(row, key, len(side)) for (key, ours), side in zip(SCORES.items(), (texts, negatives), strict=True)}
        return Contrast(needed(as_text(query, "query"), "empty_query", "query"), texts, negatives, None, instruction or None, **scores)

    return convert


def _one(row: Mapping[str, Any], keys: Sequence[str]) -> tuple[str, Any]:
    """The field of a row, of several names that it may have. A row that has two of them is refused, because it does not say which is meant."""
    found = [key for key in keys if key in row and row[key] is not None]
    if len(found) > 1:
        raise Refused("conflicting_fields", f"both {found[0]!r} and {found[1]!r} are there; name one of them in the options")
    key = found[0] if found else keys[0]
    return key, value_at(row, key)


def _negative_keys(row: Mapping[str, Any], key: str | None) -> list[str]:
    if key is not None:
        return [key] if row.get(key) is not None else []
    named = [each for each in NEGATIVES if each in row and row[each] is not None]
    numbered = sorted((each for each in row if NUMBERED.fullmatch(each)), key=lambda each: int(each.rpartition("_")[2]))
    return [*named, *(each for each in numbered if row[each] is not None)]


def _texts(value: object, where: str) -> tuple[str, ...]:
    values: Sequence[Any] = as_list(value, where) if isinstance(value, list | tuple) else [value]
    found = []
    for at, each in enumerate(values):
        place = f"{where}[{at}]"
        if isinstance(each, Mapping):
            each = _passage(each, place)
        found.append(needed(as_text(each, place), "empty_text", place))
    return tuple(found)


def _passage(value: Mapping[str, Any], where: str) -> str:
    """A passage of DPR and Tevatron: its title before its text."""
    title, text = as_mapping(value, where).get("title"), value_at(value, "text", where)
    for key in ("docid", "passage_id", "psg_id"):
        value.get(key)  # names the passage
    return f"{as_text(title, where)}\n{as_text(text, where)}" if title else as_text(text, where)


def _scores(row: Mapping[str, Any], key: str, texts: int) -> tuple[float, ...]:
    value = row.get(key)
    if value is None or not isinstance(value, list | tuple):
        return () if value is None else wrong_type(value, key, "an array")
    scores = tuple(as_number(each, f"{key}[{at}]") for at, each in enumerate(value))
    if len(scores) != texts:
        raise Refused("length_mismatch", f"{key!r} has {len(scores)} scores for {texts} texts")
    return scores


@schema("ques_embed_gen_hook", gives=Contrast, example={"question": "What is 2 + 2?", "id": 7})
def ques_embed_gen_hook(*, question_key: str = "question") -> Convert:
    """Cerebras' hook of RAFT for questions to be embedded, each with its ``id``.

    Options:
        question_key: field with the question.
    """
    return lambda row: text_to_embed(value_at(row, question_key), value_at(row, "id"))


@schema("ctx_embed_gen_hook", gives=Contrast, example={"context": "Two and two are four.", "id": 7})
def ctx_embed_gen_hook(*, context_key: str = "context") -> Convert:
    """Cerebras' hook of RAFT for contexts to be embedded, each with its ``id``.

    Options:
        context_key: field with the context.
    """
    return lambda row: text_to_embed(value_at(row, context_key), value_at(row, "id"))
