"""The ``tokenizer.json`` with which ordinary text is encoded, so that a control token that somebody typed is never the control token.

The library can leave special tokens unmatched. But a model that looks words up in its vocabulary finds ``</s>`` there all the same: Unigram (T5,
XLM-R, ALBERT), WordPiece and WordLevel. SentencePiece itself never finds control pieces in a text. So these entries get a name that no text has.
A Unigram model with byte fallback finds its bytes there too: a typed ``<0x0A>`` became a line break. Texts are cut after such a ``<``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HIDDEN = "\ufdd0"
"""A noncharacter, which no text may hold."""
_NO_BYTES = {"type": "Split", "pattern": {"Regex": "(?<=<)(?=0x[0-9A-F]{2}>)"}, "behavior": "Isolated", "invert": False}


def ordinary(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A ``tokenizer.json`` with the same ids for ordinary text, in which nothing that is typed is a special token."""
    model = spec["model"]
    if model["type"] == "Unigram" and model.get("byte_fallback"):
        before = [spec["pre_tokenizer"]] if spec.get("pre_tokenizer") else []
        spec = {**spec, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*before, _NO_BYTES]}}
    special = {token["content"] for token in spec["added_tokens"] if token["special"]}
    if model["type"] == "BPE" or special.isdisjoint(text for text, _ in _entries(model)):
        return dict(spec)

    def hidden(text: str) -> str:
        return HIDDEN + text if text in special else text

    entries = [(hidden(text), value) for text, value in _entries(model)]
    unknown = {"unk_token": hidden(model["unk_token"])} if "unk_token" in model else {}
    # an added token is looked up by its name, and what is left of these would get ids of their own
    added = [token for token in spec["added_tokens"] if token["content"] not in special]
    return {**spec, "added_tokens": added, "model": {**model, **unknown, "vocab": entries if model["type"] == "Unigram" else dict(entries)}}


def _entries(model: Mapping[str, Any]) -> list[tuple[str, Any]]:
    vocabulary = model["vocab"]
    return [(text, value) for text, value in (vocabulary if model["type"] == "Unigram" else vocabulary.items())]


def unknown_id(spec: Mapping[str, Any]) -> int | None:
    """The id that a model gives what is not in its vocabulary; `None` where it has none."""
    model = spec["model"]
    if model["type"] == "Unigram":
        return None if model.get("unk_id") is None else int(model["unk_id"])
    found = model["vocab"].get(model.get("unk_token") or "")
    return None if found is None else int(found)
