"""The families that something is trained on, as tests try them: one entry here, and a row of its schema, make a new one tried everywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from prep_assets.config.models import TRAINED
from prep_assets.graph.graph import ASSETS
from prep_assets.stores.table import LINES

ROW: Mapping[str, Callable[[str, str, str], dict[str, Any]]] = {
    "text": lambda asked, said, otherwise: {"text": f"{asked} {said} {otherwise}"},
    "messages": lambda asked, said, otherwise: {"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]},
    "preference": lambda asked, said, otherwise: {"prompt": asked, "chosen": said, "rejected": otherwise},
    "rl_prompt": lambda asked, said, otherwise: {"prompt": asked, "gold": "4"},
    "group": lambda asked, said, otherwise: {"prompt": asked, "responses": [said, otherwise], "rewards": [1.0, 0.25]},
    "contrastive": lambda asked, said, otherwise: {"query": asked, "pos": [said], "neg": [otherwise]},
}
"""A question, an answer and another one → a row of a schema."""


class Tried(NamedTuple):
    """How a family is tried.

    Attributes:
        schema: one that it reads with an entry in `ROW`.
        options: options of that schema that change what is stored.
        length: tokens that one row of `walked_inputs.ROWS` exceeds, and another does not.
        format: a format for its last asset, beside hf_arrow.
    """

    schema: str
    options: Mapping[str, Any]
    length: int
    format: str


FAMILIES: Mapping[str, Tried] = {
    "pretrain": Tried("text", {"strip": True}, 15, "astrai"),
    "sft": Tried("messages", {"roles": {"user": "system"}}, 34, "astrai"),
    "preference": Tried("preference", {"system_key": "source"}, 24, "astrai"),
    "rl": Tried("rl_prompt", {"verifier": "text"}, 20, "astrai"),
    "contrastive": Tried("contrastive", {"instruction_key": "source"}, 20, "flag_embedding"),
}
LAST = {family: [name for name, asset in ASSETS.items() if asset.family == family and asset.streams][-1] for family in TRAINED}
"""Family → the last of its assets."""
OF_TEXT = {
    family
    for family in TRAINED
    if all(stream.schema is LINES for asset in ASSETS.values() if asset.family == family for stream in asset.streams.values())
}
"""Families whose stores hold lines of text and no tokens."""
