from __future__ import annotations

from typing import Any

import pytest
import yaml

from prep_assets.astrai.load import parse_pipeline
from prep_assets.astrai.migrate import migrated
from prep_assets.config.loading import parse
from prep_assets.config.models import FAMILIES
from prep_assets.errors import ConfigError
from prep_assets_tests.astrai.pipelines import CHAT, DPO, EXAMPLES, GRPO, INSTRUCTION, SECTIONS_CHAT, SECTIONS_TEXT, TEXT, changed


def text_of(pipeline: dict[str, Any]) -> str:
    return migrated(parse_pipeline(pipeline, "p.json"), "p.json", files=["a.jsonl"], tokenizer="tok", domain="mine")


def model_of(pipeline: dict[str, Any], family: str) -> Any:
    text = text_of(pipeline)
    assert text.startswith(f"# configs/{family}.yaml, from p.json")
    return parse(FAMILIES[family], yaml.safe_load(text), "migrated")


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "grpo"])
def test_every_example_comes_to_a_configuration_that_loads(name: str) -> None:
    family = {"text": "pretrain", "sections text": "pretrain", "dpo": "preference"}.get(name, "sft")
    found = model_of(EXAMPLES[name], family)
    assert (found.tokenizer, list(found.domains), found.domains["mine"].files) == ("tok", ["mine"], ("a.jsonl",))


def test_a_chat() -> None:
    found = model_of(CHAT, "sft")
    domain = found.domains["mine"]
    assert (domain.schema_name, domain.options) == ("messages", {"messages_key": "messages"})
    assert found.mask == {"system": "mask", "user": "mask", "assistant": "train"}
    assert (found.mask_default, found.train_headers, found.truncation) == ("mask", True, "end")
    assert (found.preprocessing.max_seq_len, found.preprocessing.deduplicate) == (2048, True)
    assert (found.output.storage_format, found.output.dtype) == ("bin", "int64")


def test_an_instruction_and_a_text() -> None:
    domain = model_of(INSTRUCTION, "sft").domains["mine"]
    assert (domain.schema_name, domain.options) == ("instruction", {"prompt_key": "instruction", "response_key": "output"})
    domain = model_of(TEXT, "pretrain").domains["mine"]
    assert (domain.schema_name, domain.options) == ("text", {"text_key": "content", "min_chars": 50, "max_chars": 2_000_000})


def test_packing() -> None:
    packed = changed(SECTIONS_CHAT, preprocessing={"packing_strategy": "bfd", "max_packed_len": 4096})
    assert model_of(packed, "sft").packing.model_dump(include={"strategy", "row_len", "overlong", "shuffle"}) == {
        "strategy": "bfd",
        "row_len": 4096,
        "overlong": "truncate",
        "shuffle": False,
    }


@pytest.mark.parametrize(
    ("pipeline", "said"),
    [
        (CHAT, "where: {source: <value>}"),
        (CHAT, "first 200 characters"),
        (changed(CHAT, preprocessing={"max_items": 5}), "max_items counts"),
        (changed(SECTIONS_CHAT, preprocessing={"truncation_mode": "keep_end"}), "keep_end"),
        (changed(SECTIONS_CHAT, output={"position_ids_mode": "continuous"}), "position_ids_mode continuous"),
        (SECTIONS_CHAT, "output.dtype.loss_mask"),
        (changed(SECTIONS_TEXT, preprocessing={"packing_strategy": "bfd"}), "packing_strategy bfd"),
        (TEXT, "max_seq_len 2048"),
        (DPO, "only the answers are trained"),
    ],
)
def test_what_cannot_be_said_stands_in_comments(pipeline: dict[str, Any], said: str) -> None:
    comments = [line for line in text_of(pipeline).splitlines() if line.startswith("#")]
    assert any(said in line for line in comments)


def test_groups_with_rewards_have_no_family() -> None:
    with pytest.raises(ConfigError, match=r"prompts, responses, rewards cannot be migrated.*prep-assets preprocess"):
        text_of(GRPO)
