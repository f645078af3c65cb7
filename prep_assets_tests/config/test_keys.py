"""Every key that a user writes means what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pydantic
import pytest
import yaml

from prep_assets.config.family import Family
from prep_assets.config.loading import load_family
from prep_assets.config.models import FAMILIES, Preference, Pretrain, Rl, Sft

Load = Callable[..., Family]

WRITTEN = """
tokenizer: some/directory
template: plain
mask: {system: mask, user: train, critic: train}
mask_default: train
train_on_eos: none
preprocessing: {max_seq_len: 77, deduplicate: false}
packing: {strategy: ffd, row_len: 99}
output: {storage_format: bin}
domains:
  one:
    files: [a.jsonl, more/*.jsonl]
    schema: messages
    options: {roles: {user: user, critic: critic}}
  two.b-c_d: {files: [b.json], schema: alpaca, options: {prompt_key: q}, max_items: 3}
"""


def test_the_keys_as_written(load: Load) -> None:
    family = load(WRITTEN)
    assert isinstance(family, Sft)
    assert (family.tokenizer, family.template) == ("some/directory", "plain")
    assert (family.mask, family.mask_default, family.train_on_eos) == (
        {"system": "mask", "user": "train", "critic": "train"},
        "train",
        "none",
    )
    assert (family.preprocessing.max_seq_len, family.preprocessing.deduplicate) == (77, False)
    assert (family.packing.strategy, family.packing.row_len) == ("ffd", 99)
    assert family.output.storage_format == "bin"
    assert list(family.domains) == ["one", "two.b-c_d"]
    assert (family.domains["one"].files, family.domains["one"].schema_name) == (("a.jsonl", "more/*.jsonl"), "messages")
    assert (family.domains["two.b-c_d"].options, family.domains["two.b-c_d"].max_items) == ({"prompt_key": "q"}, 3)


@pytest.mark.parametrize(("name", "kind"), [("pretrain", Pretrain), ("sft", Sft), ("preference", Preference), ("rl", Rl)])
def test_the_shipped_configuration_of_each_family_loads_and_lists_files_that_exist(name: str, kind: type[Family]) -> None:
    folder = Path(__file__).resolve().parents[2] / "configs"
    family = load_family(name, folder)
    assert type(family) is kind
    assert (folder / family.tokenizer).is_dir()
    assert all((folder / file).is_file() for domain in family.domains.values() for file in domain.files)


def test_pretraining_has_no_longest_example_unless_asked(load: Load) -> None:
    smallest = "tokenizer: t\ndomains: {a: {files: [a.txt], schema: text}}\n"
    assert load(smallest, "pretrain").preprocessing.max_seq_len is None
    assert load(smallest + "preprocessing: {max_seq_len: 9}\n", "pretrain").preprocessing.max_seq_len == 9
    assert load(smallest + "preprocessing: {max_seq_len: null}\n", "sft").preprocessing.max_seq_len is None


def test_a_merged_anchor_gives_its_keys_and_yields_to_those_beside_it(load: Load) -> None:
    family = load(
        "tokenizer: t\ndomains:\n  a: &base {files: [a.jsonl], schema: messages, max_items: 5}\n  b: {<<: *base, files: [b.jsonl]}\n"
    )
    assert family.domains["b"].files == ("b.jsonl",)
    assert (family.domains["b"].schema_name, family.domains["b"].max_items) == ("messages", 5)


def test_models_are_frozen(load: Load) -> None:
    family = load(WRITTEN)
    assert isinstance(family, Sft)
    for model, field in (
        (family, "tokenizer"),
        (family.packing, "row_len"),
        (family.output, "storage_format"),
        (family.domains["one"], "files"),
    ):
        with pytest.raises(pydantic.ValidationError, match="frozen"):
            setattr(model, field, getattr(model, field))


def test_every_field_of_every_model_has_a_description() -> None:
    """The launchpad and the reference page show them. A field that is a model is described by its own fields."""

    def fields(model: type[pydantic.BaseModel]) -> list[str]:
        return [
            name
            for name, field in model.model_fields.items()
            if not field.description and not isinstance(field.default, pydantic.BaseModel)
        ]

    for family in FAMILIES.values():
        nested = [type(field.default) for field in family.model_fields.values() if isinstance(field.default, pydantic.BaseModel)]
        assert [fields(model) for model in (family, *nested)] == [[] for _ in (family, *nested)]


def test_what_is_dumped_is_read_back_the_same(load: Load) -> None:
    family = load(WRITTEN)
    dumped = family.model_dump(by_alias=True, mode="json")
    assert load(yaml.safe_dump(dumped)) == family


@pytest.mark.parametrize("family", FAMILIES)
def test_every_number_has_a_maximum(family: str) -> None:
    def unbounded(node: Any, path: str = "") -> Iterator[str]:
        if isinstance(node, dict):
            if node.get("type") in ("integer", "number") and not {"maximum", "exclusiveMaximum"} & node.keys():
                yield path
            node = list(node.items())
        elif isinstance(node, list):
            node = list(enumerate(node))
        else:
            return
        for name, inner in node:
            yield from unbounded(inner, f"{path}/{name}")

    assert list(unbounded(FAMILIES[family].model_json_schema())) == []
