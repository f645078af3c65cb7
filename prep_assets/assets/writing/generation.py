"""``generation_config.json`` beside data sets for Hugging Face trainers: every token at which the trained model is to stop.

A chat template may end turns with another token than the tokenizer's ``eos_token``. The data teaches the one, generation waits for the other, and
never ends. Trainers keep the base model's file, so this one is to be copied over it: ``model.generation_config`` takes the same keys.
"""

from __future__ import annotations

from pathlib import Path

from prep_assets.assets.stage import Asset
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import FAMILIES, Chat
from prep_assets.disk.written import write_json

NAME = "generation_config.json"
FORMATS = ("hf_arrow", "hf_parquet")
TOKENS = ("sft_tokens", "sft_packed", "preference_tokens", "preference_tokens_by_domain")
"""Assets whose tokens a chat template wrote, with answers and their stop tokens in them."""


def stop_ids(workspace: Workspace, source: Asset, format: str) -> list[int]:
    """Ids of the tokens at which generation stops: the template's stops, then the tokenizer's; none where the export has no such file."""
    from prep_assets.templates.generation_stops import generation_stops

    model = workspace.family(FAMILIES[source.family])
    if format not in FORMATS or source.name not in TOKENS or not isinstance(model, Chat):
        return []
    vocabulary = workspace.vocabulary(model)
    named = [vocabulary.backend.token_to_id(stop) for stop in generation_stops(workspace.template(model))]
    return list(dict.fromkeys([*(each for each in named if each is not None), vocabulary.eos_id]))


def write_generation_config(folder: Path, stops: list[int]) -> None:
    """Write the file, where there is anything to say."""
    if stops:
        write_json(folder / NAME, {"eos_token_id": stops}, indent=2)
