"""``alpaca_pairwise``: Alpaca rows with a chosen and a rejected answer (LLaMA-Factory, ModelLink)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prep_assets.samples import ASSISTANT, Pair, turn
from prep_assets.schemas.alpaca import alpaca_keys, alpaca_prompt, require_joined
from prep_assets.schemas.fields import texts_of
from prep_assets.schemas.pairs import pair_of
from prep_assets.schemas.registry import Convert, schema

JOIN = "\n"
EXAMPLE = {"instruction": "Name a prime number.", "input": "", "chosen": "7", "rejected": "9"}


@schema("alpaca_pairwise", gives=Pair, example=EXAMPLE, variant_of="alpaca")
def alpaca_pairwise(
    *,
    prompt_key: str = "instruction",
    query_key: str | None = "input",
    chosen_key: str = "chosen",
    rejected_key: str = "rejected",
    system_key: str | None = "system",
    history_key: str | None = "history",
    join: str = JOIN,
    strip: bool = False,
) -> Convert:
    """The prompt of an Alpaca row and two answers to it.

    Options:
        prompt_key: field with the instruction.
        query_key: field with the input, which may be absent or blank; null where there is none.
        chosen_key: field with the better answer.
        rejected_key: field with the worse answer.
        system_key: field with a system prompt; null where there is none.
        history_key: field with earlier ``[question, answer]`` pairs; null where there is none.
        join: what stands between instruction and input.
        strip: remove whitespace at both ends of every text.
    """
    require_joined(join != JOIN, query_key)

    def convert(row: Mapping[str, Any]) -> Pair:
        prompt = alpaca_prompt(row, prompt_key, query_key, system_key, history_key, join, strip)
        answers = (text.strip() if strip else text for text in texts_of(row, chosen_key, rejected_key))
        return pair_of(row, prompt, *((turn(ASSISTANT, text),) for text in answers))

    return convert


@schema("AlpacaStylePairwiseHandler", gives=Pair, example=EXAMPLE)
def alpaca_style_pairwise_handler(*, map_keys: Mapping[str, str] | None = None) -> Convert:
    """ModelLink's handler: `alpaca_pairwise` with its ``--map-keys``.

    Options:
        map_keys: columns for ``prompt``, ``query``, ``history``, ``system``, ``chosen``, ``rejected``.
    """
    return alpaca_pairwise(**alpaca_keys(map_keys, ("chosen", "rejected")))
