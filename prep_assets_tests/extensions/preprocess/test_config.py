"""AstrAI's pipeline files: both dialects, what is refused, and the configurations that they come to."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
import yaml

from prep_assets.cli.main import app
from prep_assets.config.loading import parse
from prep_assets.config.models import FAMILIES
from prep_assets.errors import ConfigError
from prep_assets.extensions.preprocess.astrai import (
    Dtype,
    Section,
    SectionsInput,
    SectionsOutput,
    SectionsPipeline,
    SectionsPreprocessing,
    Source,
    TypedInput,
    TypedPipeline,
    TypedPreprocessing,
    load_pipeline,
    migrate_pipeline,
    parse_pipeline,
    task_of,
)
from prep_assets.extensions.preprocess.astrai_run import folder_of
from prep_assets.samples import Group
from prep_assets.schemas.registry import convert_with
from prep_assets_tests.cells import cells
from prep_assets_tests.extensions.preprocess.pipelines import (
    CHAT,
    DPO,
    EXAMPLES,
    GRPO,
    INSTRUCTION,
    SECTIONS_CHAT,
    SECTIONS_TEXT,
    TEXT,
    changed,
)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_round_trip_through_a_file_with_every_key_written_out(name: str, tmp_path: Path) -> None:
    parsed = parse_pipeline(EXAMPLES[name], name)
    assert isinstance(parsed, SectionsPipeline) is (name.startswith("sections") or name in ("dpo", "grpo"))
    (tmp_path / "p.json").write_text(parsed.model_dump_json(indent=2), "utf-8")
    assert load_pipeline(tmp_path / "p.json") == parsed


def test_defaults_of_the_typed_dialect_are_the_documented_ones() -> None:
    parsed = parse_pipeline({}, "empty")
    assert isinstance(parsed, TypedPipeline)
    assert parsed.model_dump() == {
        "version": 1,
        "input": {"type": "chat", "messages_key": "messages", "prompt_key": "prompt", "response_key": "response", "text_key": "text"},
        "mask": {},
        "mask_default": "mask",
        "preprocessing": {"max_seq_len": 2048, "min_chars": 50, "max_chars": 2_000_000, "deduplicate": True, "max_items": None},
        "output": {"domain_key": None, "storage_format": "bin", "max_tokens_per_shard": 100_000_000},
    }


def test_defaults_of_the_sections_dialect_are_astrais() -> None:
    parsed = parse_pipeline({"input": {"sections": [{"field": "text", "action": "train"}]}}, "short")
    assert parsed.preprocessing.model_dump() == {
        "max_seq_len": 2048,
        "min_chars": 50,
        "max_chars": 2_000_000,
        "max_items": None,
        "batch_size": 256,
        "packing_strategy": "simple",
        "max_packed_len": 8192,
        "truncation_mode": "keep_start",
    }
    assert parsed.output.model_dump() == {
        "domain_key": None,
        "storage_format": "bin",
        "max_tokens_per_shard": 100_000_000,
        "dtype": {},
        "position_ids_mode": "doc_reset",
    }


FAULTS: list[tuple[Any, str, tuple[str, ...]]] = [
    ("unknown key at the top", {**CHAT, "masks": {}}, ("masks", "did you mean 'mask'?")),
    ("unknown input key", changed(CHAT, input={"message_key": "m"}), ("message_key", "did you mean 'messages_key'?")),
    ("unknown type", changed(CHAT, input={"type": "chats"}), ("input.type", "did you mean 'chat'?")),
    ("a builder of one's own", changed(CHAT, input={"type": "my_format"}), ("input.type", "schema: module:Class", "tokenized_by")),
    ("unknown preprocessing key", changed(CHAT, preprocessing={"max_seqlen": 1}), ("max_seqlen", "did you mean 'max_seq_len'?")),
    ("unknown output key", changed(CHAT, output={"format": "bin"}), ("format", "storage_format")),
    ("unknown mask action", changed(CHAT, mask={"user": "masked"}), ("mask.user", "did you mean 'mask'?")),
    ("unknown default action", {**CHAT, "mask_default": "trian"}, ("mask_default", "did you mean 'train'?")),
    ("unknown storage format", changed(CHAT, output={"storage_format": "hdf5"}), ("storage_format", "'bin' or 'h5'", "did you mean 'h5'?")),
    ("a format that AstrAI cannot write either", changed(SECTIONS_CHAT, output={"storage_format": "jsonl"}), ("jsonl", "'bin' or 'h5'")),
    ("unknown version", {**CHAT, "version": 2}, ("version", "2")),
    ("a number as text", changed(CHAT, preprocessing={"max_seq_len": "77"}), ("max_seq_len", "77")),
    ("a fraction", changed(CHAT, preprocessing={"max_seq_len": 12.7}), ("max_seq_len", "12.7")),
    ("no length", changed(CHAT, preprocessing={"max_seq_len": 0}), ("max_seq_len", "1")),
    ("no text can pass", changed(TEXT, preprocessing={"min_chars": 9, "max_chars": 8}), ("min_chars 9", "max_chars 8")),
    ("a misspelt role", changed(CHAT, mask={"assistant": "train", "asistant": "train"}), ("mask.asistant", "did you mean 'assistant'?")),
    ("a role in an instruction", changed(INSTRUCTION, mask={"promt": "mask"}), ("mask.promt", "did you mean 'prompt'?")),
    ("a mask of a text", changed(TEXT, mask={"user": "mask"}), ("mask.user", "every token of a text is trained")),
    ("mixed dialects", changed(SECTIONS_CHAT, input={"type": "chat"}), ("input.type", "input.sections", "dialects")),
    ("deduplicate among sections", changed(SECTIONS_CHAT, preprocessing={"deduplicate": True}), ("preprocessing.deduplicate", "--dedup")),
    ("packing in the typed dialect", changed(CHAT, preprocessing={"packing_strategy": "bfd"}), ("packing_strategy", "input.type")),
    ("sections and sources", changed(SECTIONS_CHAT, input={"sources": DPO["input"]["sources"]}), ("either sections", "sources")),
    ("neither", {"input": {"sections": None, "sources": None}}, ("either sections",)),
    ("no section", {"input": {"sections": []}}, ("input.sections",)),
    ("unknown section key", {"input": {"sections": [{"field": "t", "acton": "train"}]}}, ("acton", "did you mean 'action'?")),
    ("unknown section action", {"input": {"sections": [{"field": "t", "action": "trained"}]}}, ("action", "did you mean 'train'?")),
    ("roles without messages", {"input": {"sections": [{"field": "t", "action": "$role"}]}}, ("$role", "template")),
    ("values in one stream", {"input": {"sections": [{"field": "t", "action": "value"}]}}, ("value", "sources")),
    ("unknown packing", changed(SECTIONS_TEXT, preprocessing={"packing_strategy": "bfd-split"}), ("did you mean 'bfd_split'?",)),
    ("unknown truncation", changed(SECTIONS_TEXT, preprocessing={"truncation_mode": "keep_first"}), ("keep_start", "keep_end")),
    ("unknown dtype", changed(SECTIONS_TEXT, output={"dtype": {"sequence": "uint16"}}), ("output.dtype.sequence", "uint16", "int16")),
    ("unknown position ids", changed(SECTIONS_TEXT, output={"position_ids_mode": "reset"}), ("position_ids_mode", "doc_reset")),
    ("packed pairs", changed(DPO, preprocessing={"packing_strategy": "bfd"}), ("bfd", "sources")),
    ("positions of pairs", changed(DPO, output={"position_ids_mode": "continuous"}), ("position_ids_mode", "sources")),
    ("values only", {"input": {"sources": {"r": {"sections": [{"field": "r", "action": "value"}]}}}}, ("nothing is tokenized",)),
    ("a key that is a path", {"input": {"sources": {"../x": DPO["input"]["sources"]["chosen"]}}}, ("../x",)),
    ("no object", [1], ("list",)),
]


def test_a_faulty_section_is_one_fault() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_pipeline({"input": {"sections": [{"field": "t", "action": "tran"}]}}, "sft.json")
    assert len(str(caught.value).split("\n")) == 2 and "did you mean 'train'?" in str(caught.value)
    with pytest.raises(ConfigError, match=r"input\.sections: needs at least one entry"):
        parse_pipeline({"input": {"sections": []}}, "sft.json")


@cells(("values", "said"), [fault[1:] for fault in FAULTS], ids=[str(fault[0]) for fault in FAULTS])
def test_what_means_nothing_is_refused_with_a_remedy(values: Any, said: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_pipeline(values, "sft.json")
    for part in ("sft.json", *said):
        assert part in str(caught.value)


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"mask": {"user": "mask", "user": "train"}}', "utf-8")
    with pytest.raises(ConfigError, match="'user' stands twice"):
        load_pipeline(tmp_path / "p.json")


@pytest.mark.parametrize("text", [None, "{", "\ufeff{}"])
def test_what_is_no_json_file_is_refused(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "p.json").write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=r"p\.json"):
        load_pipeline(tmp_path / "p.json")


def columns(values: Any, **options: Any) -> dict[str, str]:
    return {key: column.dtype for key, column in task_of(parse_pipeline(values, "p"), **options).columns.items()}


PACKED_TEXT = changed(SECTIONS_TEXT, preprocessing={"packing_strategy": "bfd"})
GROUPS = {"prompts": "int32", "prompts_mask": "int32", "responses": "int32", "masks": "int32", "rewards": "float32"}


@pytest.mark.parametrize(
    ("pipeline", "positions", "expected"),
    [
        (CHAT, None, {"sequence": "int64", "loss_mask": "int64"}),
        (CHAT, "doc_reset", {"sequence": "int64", "loss_mask": "int64", "position_ids": "int64"}),
        (TEXT, None, {"sequence": "int64"}),
        (SECTIONS_CHAT, None, {"sequence": "int32", "loss_mask": "bool", "position_ids": "int32"}),
        (SECTIONS_TEXT, None, {"sequence": "int32", "position_ids": "int32"}),
        (SECTIONS_TEXT, "none", {"sequence": "int32"}),
        (PACKED_TEXT, "none", {"sequence": "int32", "loss_mask": "int32"}),  # for its padding
        (DPO, None, dict.fromkeys(("chosen", "chosen_mask", "rejected", "rejected_mask"), "int32")),
        (GRPO, None, GROUPS),
    ],
)
def test_keys_and_types_of_each_kind_of_store(pipeline: Any, positions: Any, expected: dict[str, str]) -> None:
    found = columns(pipeline, position_ids=positions)
    assert list(found.items()) == list(expected.items())


TWICE = changed(
    DPO, input={"sources": {**DPO["input"]["sources"], "rejected": {**DPO["input"]["sources"]["rejected"], "mask_key": "chosen_mask"}}}
)


@pytest.mark.parametrize(
    ("pipeline", "positions", "said"),
    [
        (DPO, "doc_reset", "sources"),
        (changed(SECTIONS_CHAT, output={"dtype": {"loss_masks": "bool"}}), None, "did you mean 'loss_mask'"),
        (changed(SECTIONS_CHAT, output={"dtype": {"sequence": "bool"}}), None, "int32"),
        (changed(SECTIONS_CHAT, output={"dtype": {"sequence": "float32"}}), None, "int32"),
        (changed(SECTIONS_CHAT, output={"dtype": {"position_ids": "float16"}}), None, "int64"),
        (changed(GRPO, output={"dtype": {"rewards": "int32"}}), None, "rewards"),
        (TWICE, None, "'chosen_mask'"),
    ],
)
def test_columns_that_cannot_be(pipeline: Any, positions: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        columns(pipeline, position_ids=positions)


# -- migrate -----------------------------------------------------------------------------------------------------------------------------


def text_of(pipeline: dict[str, Any]) -> str:
    return migrate_pipeline(parse_pipeline(pipeline, "p.json"), "p.json", files=["a.jsonl"], tokenizer="tok", domain="mine")


def model_of(pipeline: dict[str, Any], family: str) -> Any:
    text = text_of(pipeline)
    assert text.startswith(f"# configs/{family}.yaml, from p.json")
    return parse(FAMILIES[family], yaml.safe_load(text), "migrated")


# what the examples of the recipes come to stands in `test_recipes`, to the byte
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_comes_to_a_configuration_that_loads(name: str) -> None:
    family = {"text": "pretrain", "sections text": "pretrain", "dpo": "preference", "grpo": "rl"}.get(name, "sft")
    found = model_of(EXAMPLES[name], family)
    assert (found.tokenizer, list(found.domains), found.domains["mine"].files) == ("tok", ["mine"], ("a.jsonl",))


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


# -- the page names every key and option, and its examples are true ----------------------------------------------------------------------


PAGE = (Path(__file__).resolve().parents[3] / "docs" / "preprocess.md").read_text("utf-8")
MODELS = (TypedInput, TypedPreprocessing, SectionsInput, Section, Source, SectionsPreprocessing, SectionsOutput)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: str(model.__name__))
def test_every_key_is_described(model: type) -> None:
    assert [key for key in model.model_fields if not re.search(rf"[`.]{key}`", PAGE)] == []  # type: ignore[attr-defined]


def test_every_option_has_a_help_and_every_dtype_is_described() -> None:
    options = typer.main.get_command(app).commands["preprocess"].load().params  # type: ignore[attr-defined]
    assert len(options) > 8
    assert [option.name for option in options if not option.help] == []
    assert [name for name in get_args(Dtype) if f"`{name}`" not in PAGE] == []


def test_the_examples_are_valid() -> None:
    examples = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        parse_pipeline(json.loads(example), "docs/preprocess.md")


def test_the_folder_of_the_page_is_the_folder() -> None:
    assert f"`../x` is\n`{folder_of('../x')}`" in PAGE
