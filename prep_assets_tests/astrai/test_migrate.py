from __future__ import annotations

from typing import Any

import pytest
import yaml

from prep_assets.assets.configured import group_domains
from prep_assets.astrai.config import parse_pipeline
from prep_assets.astrai.migrate import migrated
from prep_assets.config.loading import parse
from prep_assets.config.models import FAMILIES
from prep_assets.errors import ConfigError
from prep_assets.samples import Group
from prep_assets.schemas.registry import convert_with
from prep_assets_tests.astrai.pipelines import CHAT, DPO, EXAMPLES, GRPO, INSTRUCTION, SECTIONS_CHAT, SECTIONS_TEXT, TEXT, changed


def text_of(pipeline: dict[str, Any]) -> str:
    return migrated(parse_pipeline(pipeline, "p.json"), "p.json", files=["a.jsonl"], tokenizer="tok", domain="mine")


def model_of(pipeline: dict[str, Any], family: str) -> Any:
    text = text_of(pipeline)
    assert text.startswith(f"# configs/{family}.yaml, from p.json")
    return parse(FAMILIES[family], yaml.safe_load(text), "migrated")


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_comes_to_a_configuration_that_loads(name: str) -> None:
    family = {"text": "pretrain", "sections text": "pretrain", "dpo": "preference", "grpo": "rl"}.get(name, "sft")
    found = model_of(EXAMPLES[name], family)
    assert (found.tokenizer, list(found.domains), found.domains["mine"].files) == ("tok", ["mine"], ("a.jsonl",))


def test_a_chat() -> None:
    found = model_of(CHAT, "sft")
    domain = found.domains["mine"]
    assert (domain.schema_name, domain.options) == ("messages", {"messages_key": "messages"})
    assert (domain.domains, domain.domain_key) == ("auto", "source")
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
        (CHAT, "domain_key: AstrAI puts values other than text into __default__"),
        (CHAT, "first 200 characters"),
        (changed(CHAT, preprocessing={"max_items": 5}), "max_items counts the records of each domain"),
        (changed(CHAT, preprocessing={"max_items": 5}, output={"domain_key": None}), "max_items counts the records that are read"),
        (changed(SECTIONS_CHAT, preprocessing={"truncation_mode": "keep_end"}), "keep_end"),
        (changed(SECTIONS_CHAT, output={"position_ids_mode": "continuous"}), "position_ids_mode continuous"),
        (SECTIONS_CHAT, "output.dtype.loss_mask"),
        (changed(SECTIONS_TEXT, preprocessing={"packing_strategy": "bfd"}), "packing_strategy bfd"),
        (TEXT, "max_seq_len 2048"),
        (DPO, "only the answers are trained"),
        (GRPO, "a prompt ends with the generation prompt"),
        (GRPO, "is refused; AstrAI cuts responses off"),
    ],
)
def test_what_cannot_be_said_stands_in_comments(pipeline: dict[str, Any], said: str) -> None:
    comments = [line for line in text_of(pipeline).splitlines() if line.startswith("#")]
    assert any(said in line for line in comments)


def with_sources(**sources: Any) -> dict[str, Any]:
    return changed(GRPO, input={"sources": {**GRPO["input"]["sources"], **sources}})


PLAIN = {"sections": [{"field": "question", "action": "mask"}, {"field": "context", "action": "mask"}]}
TEMPLATED = {"sections": [{"field": "answers", "action": "$role", "template": True}], "list_field": True, "mask_key": "masks"}


def test_groups_with_a_template() -> None:
    found = model_of(GRPO, "rl")
    domain = found.domains["mine"]
    assert domain.schema_name == "group"
    assert domain.options == {"prompt_key": "prompt", "responses_key": "responses", "rewards_key": "rewards"}
    assert group_domains(found) == ("mine",)
    assert (found.template, found.test_fraction, found.preprocessing.max_seq_len) == ("tokenizer", 0.0, 2048)


def test_groups_without_a_template() -> None:
    domain = model_of(with_sources(prompts=PLAIN), "rl").domains["mine"]
    assert domain.schema_name == "sections"
    group = convert_with("sections", domain.options)({"question": "a", "context": "b", "responses": ["c", "d"], "rewards": [1, 0.5]})
    assert isinstance(group, Group)
    assert [turn.text for turn in group.prompt] == ["a", "b"]
    assert [turn.text for response in group.responses for turn in response] == ["c", "d"]
    assert group.rewards == (1, 0.5)


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        ({"prompts": PLAIN, "responses": TEMPLATED}, "responses with a template after prompts without one cannot be migrated"),
        (
            {"prompts": {"sections": [{"field": field, "action": "$role", "template": True} for field in "ab"]}},
            "prompts of 2 sections cannot be migrated",
        ),
    ],
)
def test_groups_that_have_no_configuration(sources: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        text_of(with_sources(**sources))


def test_other_sources_have_no_family() -> None:
    scored = {"sections": [{"field": "score", "action": "value"}]}
    whole = {"sections": [{"field": "text", "action": "train"}]}
    with pytest.raises(ConfigError, match=r"sources text, score cannot be migrated.*prep-assets preprocess"):
        text_of({"input": {"sources": {"text": whole, "score": scored}}})
