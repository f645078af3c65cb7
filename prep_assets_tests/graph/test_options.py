"""Every option and every template does what it says, and hostile configurations stop the build."""

from __future__ import annotations

import copy
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin
from unittest.mock import Mock

import numpy as np
import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from prep_assets.config.base import younger
from prep_assets.config.family import Domain, Export, Packing
from prep_assets.config.models import FAMILIES, TRAINED, Sft
from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.extensions.dagster.metadata import code_version
from prep_assets.graph.graph import assets_of
from prep_assets.pipeline.asset import option_recipe
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.table import open_stream
from prep_assets.stores.version_folders import Published
from prep_assets.text.load_template import named_templates
from prep_assets_tests.corpus.conversations import chat
from prep_assets_tests.effort import SOAK
from prep_assets_tests.graph.conftest import Make
from prep_assets_tests.graph.every_template import OWN, outcome, tokenizer, trl
from prep_assets_tests.graph.families import FAMILIES as TRIED
from prep_assets_tests.graph.walked_inputs import write_inputs
from prep_assets_tests.graph.walked_options import SHOWN, By, Doing, Elsewhere, Idle, Shown
from prep_assets_tests.graph.workspaces import build, build_all, copy_of, domain, jsonl, minimal, refusals, unchecked, workspace_in
from prep_assets_tests.stored import packed_rows

# No option is accepted and ignored: each field of each family's configuration changes what is built from a fitting input, or what is done.
#
# An option that is on or off, or one of some words, is shown by another value. Every other has an entry in `SHOWN`, and so has one that means something
# beside other options only. What has no effect beside other options is refused: `config/test_config.py`. What has no effect to a family is `Idle`.


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with every input; a module with schemas of the user's own is importable from it."""
    folder = tmp_path_factory.mktemp("walk")
    write_inputs(folder)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    sys.modules.pop("walk_schemas", None)


def fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every field by its path, as a configuration writes it; ``*`` stands for a name."""
    for name, each in model.model_fields.items():
        inner = {"domains": Domain, "exports": Export}.get(name) if not prefix else None
        if isinstance(each.default, BaseModel):
            yield from fields(type(each.default), f"{prefix}{name}.")
        elif inner is not None:
            yield from ([(name, each)] if name == "exports" else [])
            yield from fields(inner, f"{name}.*.")
        else:
            yield prefix + (each.alias or name), each


def another(each: FieldInfo) -> By | None:
    """A value that an option has not, where its type tells the values that it may have."""
    if each.annotation is bool:
        return By(not each.default)
    words = [word for word in get_args(each.annotation) if get_origin(each.annotation) is Literal and word != each.default]
    return By(words[-1]) if words else None


EVERY: dict[tuple[str, str], Shown | None] = {
    (family, path): SHOWN[family].get(path) or another(each) for family in TRAINED for path, each in fields(FAMILIES[family])
}


@pytest.mark.parametrize("family", TRAINED)
def test_every_field_is_shown(family: str) -> None:
    assert [path for (of, path), shown in EVERY.items() if of == family and shown is None] == [], "each needs an entry in SHOWN"
    assert [path for path in SHOWN[family] if (family, path) not in EVERY] == []


@pytest.mark.parametrize("test", sorted({each.test for shown in SHOWN.values() for each in shown.values() if isinstance(each, Elsewhere)}))
def test_what_is_shown_elsewhere_is_there(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name}(" in (Path(__file__).resolve().parents[2] / file).read_text("utf-8")


class NewerPacking(Packing):
    halves: bool = younger(False)


class Newer(Sft):
    train_some: int | None = younger(None, ge=1)
    packing: NewerPacking = NewerPacking()


def test_a_younger_option_changes_recipes_and_code_versions_at_other_values_only() -> None:
    """A new option must not make every store of its assets stale."""

    def known(kind: type[Sft], **values: Any) -> tuple[Any, str]:
        family = kind(**{"tokenizer": "t", "domains": {"a": domain("chats.jsonl", "messages")}, **values})
        asset = Mock(family="sft", version="1", options=("mask", "packing", *(["train_some"] if kind is Newer else [])))
        return option_recipe(Mock(), family, asset.options), code_version(Mock(family=lambda _: family), asset)

    assert known(Newer) == known(Newer, train_some=None, packing={"halves": False}) == known(Sft)
    changed = known(Newer, train_some=1, packing={"halves": True})
    assert changed[0] == {**known(Sft)[0], "train_some": 1, "packing": {**known(Sft)[0]["packing"], "halves": True}}
    assert len({version for _, version in (changed, known(Sft), known(Newer, train_some=1))}) == 3


# -- building -----------------------------------------------------------------------------------------------------------------------------


def configuration(family: str, files: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """A small configuration with options set by their paths."""
    own = {"files": [f"@{family}.jsonl"], "schema": TRIED[family].schema}
    found: dict[str, Any] = {"tokenizer": "@tokenizer", "domains": {"a": dict(own)}}
    if family == "rl":
        found |= {"arithmetic": {"n": 20}}
        found["domains"]["groups"] = {"files": ["@groups.jsonl"], "schema": "group"}
    if family == "sft":
        found |= {"packing": {"row_len": 128}}
    if family == "preference":
        found |= {"test_fraction": 0.0}
    for path, value in values.items():
        *above, last = path.replace("domains.*", "domains.a").replace("exports.*", "exports.e").split(".")
        place = found
        for key in above:
            place = place.setdefault(key, {})
        place[last] = copy.deepcopy(value)
    if "b" in found["domains"] and not found["domains"]["b"]:
        read = {key: found["domains"]["a"][key] for key in ("files", "schema")}
        found["domains"]["b"] = {**read, "domain_key": "source"}
    return json.loads(json.dumps(found).replace('"@', f'"{files}/'))  # type: ignore[no-any-return]


Held = tuple[str, Mapping[str, Any], str]
"""Hash of a store's content, counts, hash of its quarantine."""


def outcomes(family: str, folder: Path, values: Mapping[str, Any]) -> Iterator[tuple[str, Held]]:
    """What each store of the family holds, as it is built, what feeds others first."""
    workspace = workspace_in(folder, {family: dict(values)})
    for name, asset in assets_of(workspace).items():
        for partition in asset.partitions(workspace):
            # what a store holds is in question here, not whether its checks hold
            store = unchecked(workspace, asset, partition)
            yield f"{name}[{partition}]", (store.manifest.content_hash, store.manifest.counts, store.manifest.quarantine)


CASES = [each for each, shown in EVERY.items() if shown and not isinstance(shown, Elsewhere)]
OFTEN = {path for path in SHOWN["rl"] if all(path in SHOWN[family] for family in TRAINED)}
"""Options of all families: `make test` shows them of two, `make soak` of each."""
PLAIN: dict[str, tuple[dict[str, Held], Path]] = {}
"""Outcomes without any option, and the folder of their stores."""


@pytest.mark.parametrize(
    ("family", "path"),
    [
        pytest.param(
            family, path, id=f"{family}-{path}", marks=[pytest.mark.soak] if path in OFTEN and family not in ("pretrain", "sft") else []
        )
        for family, path in CASES
    ],
)
def test_an_option_shows(files: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, family: str, path: str) -> None:
    shown = EVERY[family, path]
    assert shown and not isinstance(shown, Elsewhere)
    if isinstance(shown, Idle):
        refused = workspace_in(tmp_path, {family: configuration(family, files, {path: shown.value})})
        with pytest.raises(ConfigError, match=f"{path.split('.')[-1]}: .*has no effect here: .* Leave it out"):
            refused.family(FAMILIES[family])
        return
    without, with_it = (configuration(family, files, {**shown.beside, **more}) for more in ({}, {path: shown.value}))
    if path == "domains.*.format":
        shutil.copyfile(files / f"{family}.jsonl", files / f"{family}.data")
    if isinstance(shown, Doing):
        before, after = (
            shown.seen(workspace_in(tmp_path / name, {family: values}), family) for name, values in (("0", without), ("1", with_it))
        )
        assert before != after
        return
    if shown.stops:
        with pytest.raises(PrepAssetsError, match=shown.stops):
            list(outcomes(family, tmp_path / "0", without))
        assert list(outcomes(family, tmp_path / "1", with_it))
        return
    key = json.dumps([family, without])
    if key not in PLAIN:
        stored = tmp_path_factory.mktemp("plain")
        PLAIN[key] = dict(outcomes(family, stored, without)), stored
    before, stored = PLAIN[key]
    # a store is there already unless the option is in its recipe, so one whose recipe lacks the option stays as it was
    shutil.copytree(stored / "stores", tmp_path / "1" / "stores", symlinks=True, copy_function=os.link)
    left = dict(before)
    for name, held in outcomes(family, tmp_path / "1", with_it):  # up to the first store that is another one
        if left.pop(name, None if path == "exports" else held) != held:
            return
    assert left, "no store differs, and none is gone"


# Chats that people have and templates were not made for, with every template: each row is kept and every check holds, or it is refused with a reason.
# No store is blocked.


BLANKS = ("", "  ", "\n", " \n", "\t")
SHIPPED = {**OWN, **named_templates()}


def said(*turns: str) -> dict[str, Any]:
    """A chat; a turn is the first letter of its role and its text."""
    roles = {"u": "user", "a": "assistant", "s": "system"}
    return {"messages": [{"role": roles[turn[0]], "content": turn[1:]} for turn in turns]}


def chats() -> Iterator[dict[str, Any]]:
    """Two answers in a row, and answers with white space at their edges; enough of each form that it is learned, and some that are looked for."""
    for blank in BLANKS:
        answer = f"a{blank}pad it.{blank}"
        for question in ("uHi", "uWhat is it, please?"):
            yield said(question, f"a{blank}pad it.")
            yield said(question, answer, answer)
        yield said("u  Well ", f"aOne.{blank}", "uAnd?", answer)
        yield said("uHi", "aOne.", f"a{blank}Two.", "uAnd?", "aThree.")
        yield said("sSaid.", "uHi", answer, f"a{blank}pad", "uplease", f"aOne{blank}")


@pytest.fixture(scope="module", params=("bytes", "first"))
def tokens(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tokenizer(request.param, tmp_path_factory.mktemp("tokenizers") / request.param)


@pytest.fixture(scope="module", params=("always", "prepended"))
def spacing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tokenizer(request.param, tmp_path_factory.mktemp("tokenizers") / request.param)


def blocked(folder: Path, templates: Mapping[str, str], tokens: Path, **options: Any) -> dict[str, str]:
    """What is wrong with the store of each template."""
    rows = list(chats())
    found = {}
    for number, (name, source) in enumerate(templates.items()):
        try:
            outcome(folder / str(number), source, tokens, rows, **options)
        except PrepAssetsError as error:
            if f"all {len(rows)} records were refused" not in str(error):  # some of TRL's write no stop
                found[name] = str(error)
    return found


def test_shipped_templates_and_some_that_look_back(tmp_path: Path, tokens: Path) -> None:
    """The second tokenizer tells templates apart by the spaces that they write. In `make test` it has those that look for that, the first every fourth."""
    some = SHIPPED if SOAK else OWN if tokens.name != "bytes" else dict(list(SHIPPED.items())[::4])
    assert not blocked(tmp_path, some, tokens)


def test_published_templates(tmp_path: Path, tokens: Path, real_data: Path) -> None:
    templates = {name: source for name, source in trl(real_data).items() if tokens.name != "bytes" or not name.endswith("_training")}
    assert not blocked(tmp_path, templates, tokens)


def test_tokenizers_that_put_spaces(tmp_path: Path, spacing: Path) -> None:
    """A space of the tokenizer's own after a control token is none of the template's."""
    assert not blocked(tmp_path, OWN, spacing)
    assert not blocked(tmp_path / "headers", {"chatml": SHIPPED["chatml"]}, spacing, train_headers=True)


@pytest.mark.parametrize("content", ["m.content", "m.content.lstrip()", "m.content.rstrip()"])
def test_texts_that_nothing_but_a_space_parts(tmp_path: Path, tokens: Path, content: str) -> None:
    """Two answers in a row, of which the first ends with white space and the second begins with it: whose each is, can be told. Only where a token holds
    white space of an answer and of the template, the row is rejected."""
    source = f"{{% for m in messages %}}{{{{ {content} + ' ' }}}}{{% endfor %}}"
    store = outcome(tmp_path / "made", source, tokens, list(chats()), train_on_eos="none")
    across = 0 if content != "m.content" else 6 if tokens.name == "bytes" else 3
    assert [each.reason for each in refusals(store)] == ["mask_border_inside_token"] * across


@pytest.mark.soak
@pytest.mark.parametrize(
    "options", [{"train_on_eos": "none"}, {"train_on_eos": "all", "mask_default": "train"}, {"train_turns": "last"}], ids=str
)
def test_under_other_policies(tmp_path: Path, tokens: Path, options: dict[str, Any]) -> None:
    assert not blocked(tmp_path, SHIPPED, tokens, **options)


@pytest.mark.soak
def test_with_headers(tmp_path: Path, tokens: Path) -> None:
    """Of templates that write one before an answer is generated, and whose renders grow by turns."""
    named = ("chatml", "gemma", "glm4", "llama3", "qwen", "vicuna")
    assert not blocked(tmp_path, {name: SHIPPED[name] for name in named}, tokens, train_headers=True)


# Configurations that are legal but unlikely: they work, and every check holds, or they stop with a sentence that says why.


FORMATS = ("h5", "bin")


def built(workspace: Workspace, family: str) -> dict[tuple[str, str], Published]:
    """All stores of a family: the engine refuses one that fails a check."""
    return build_all(workspace, [family])


@pytest.fixture
def one(tmp_path: Path) -> Path:
    return jsonl(tmp_path / "one.jsonl", [chat("hi", "hello")])


@pytest.mark.parametrize("storage_format", FORMATS)
def test_one_record_in_a_row_longer_than_everything(make: Make, one: Path, storage_format: str) -> None:
    options = {"output": {"storage_format": storage_format}, "packing": {"row_len": 5000}}
    published = built(make(minimal("sft", {"a": domain(one, "messages")}, **options)), "sft")["sft_packed", ""]
    packed = open_stream(published.directory, "sft_packed")
    assert np.asarray(packed_rows(packed)[:]).shape == (1, 5000)
    used = int(packed.pieces.fields["length"].sum())
    assert not np.asarray(packed_rows(packed, "loss_mask")[:])[0, used:].any()
    assert set(np.asarray(packed_rows(packed)[:])[0, used:].tolist()) == {3}


@pytest.mark.parametrize(("storage_format", "family"), [("h5", "pretrain"), ("bin", "pretrain"), ("h5", "sft"), ("bin", "rl")])
def test_a_split_without_a_record_is_an_empty_stream(make: Make, tmp_path: Path, one: Path, storage_format: str, family: str) -> None:
    files = {
        "pretrain": domain(jsonl(tmp_path / "d.jsonl", [{"text": "one document"}]), "text"),
        "sft": domain(one, "messages"),
        "rl": domain(jsonl(tmp_path / "r.jsonl", [{"question": "q?", "answer": "so\n#### 4"}]), "gsm8k"),
    }
    # a share so small that no hash falls into it; for RL so large that every one does
    options: dict[str, Any] = {"test_fraction": 0.999999 if family == "rl" else 1e-12, "output": {"storage_format": storage_format}}
    found = built(make(minimal(family, {"a": files[family]}, **options)), family)
    asset, stream = {"pretrain": ("pretrain_tokens", "a_dev"), "sft": ("sft_tokens", "dev"), "rl": ("rl_tokens", "prompts")}[family]
    store = open_stream(found[asset, "" if family == "rl" else "a"].directory, stream)
    assert len(store) == 0 and len(store.columns["tokens"].values) == 0
    if family == "sft":
        assert len(open_stream(found["sft_packed", ""].directory, "sft_dev_packed")) == 0


@pytest.mark.parametrize(
    ("packing", "fraction"),
    [
        ({"row_len": 100_000, "tail": "drop"}, 0.0),
        ({"row_len": 4, "strategy": "ffd", "overlong": "drop"}, 0.0),
        ({"row_len": 4, "strategy": "ffd", "overlong": "truncate"}, 0.0),
        ({"row_len": 64}, 0.999999),
    ],
)
def test_a_table_without_a_row_is_not_published(make: Make, one: Path, packing: dict[str, Any], fraction: float) -> None:
    workspace = make(minimal("sft", {"a": domain(one, "messages")}, packing=packing, test_fraction=fraction))
    with pytest.raises(PrepAssetsError, match=r"sft_packed: no row of sft_packed is left of \d train records"):
        build_all(workspace, ["sft"])
    assert workspace.published("sft_packed") is None


def test_pairs_that_are_all_held_out_are_tokenized_as_such(make: Make, tmp_path: Path) -> None:
    file = jsonl(tmp_path / "p.jsonl", [{"prompt": "q", "chosen": "y", "rejected": "n"}])
    found = build_all(make(minimal("preference", {"a": domain(file, "preference")}, test_fraction=0.999999)), ["preference"])
    counts = found["preference_tokens", ""].manifest.counts
    assert (counts["kept"], counts["kept_test"]) == (1, 1)


def test_documents_of_white_space_are_refused_and_typed_control_tokens_are_text(make: Make, tmp_path: Path) -> None:
    rows = [{"text": " \n\t"}, {"text": ""}, {"text": "\u3000\u00a0"}, {"text": "a<|endoftext|>b<|im_end|>"}, {"text": "<|endoftext|>"}]
    workspace = make(minimal("pretrain", {"a": domain(jsonl(tmp_path / "a.jsonl", rows), "text")}))
    published = built(workspace, "pretrain")["pretrain_tokens", "a"]
    assert [r.id for r in refusals(published)] == ["a.jsonl:1", "a.jsonl:2", "a.jsonl:3"]
    store = open_stream(published.directory, "a_train")
    assert [np.flatnonzero(store.record(i, "tokens") == 0).tolist() for i in range(2)] == [
        [len(store.record(i, "tokens")) - 1] for i in range(2)
    ]


def semantic(*weights: float) -> dict[str, Any]:
    regions = [{"text": f"Line {i}.\n"} for i in range(len(weights))]
    answer = {"type": "assistant", "content": regions, "semantic_loss_weight": list(weights)}
    return {"semantic_data_array": [{"type": "user", "content": [{"text": "Say it."}]}, answer]}


@pytest.mark.parametrize(("storage_format", "names"), [("h5", ("a", "b")), ("bin", ("b", "a"))])
def test_fractional_weights_arrive_in_the_packed_table_whichever_domain_comes_first(
    make: Make, tmp_path: Path, storage_format: str, names: tuple[str, str]
) -> None:
    file = jsonl(tmp_path / "s.jsonl", [semantic(0.5, 0.25), semantic(0, 2.0), semantic(1, 1)])
    domains = {names[0]: domain(file, "semantic"), names[1]: domain("chats.jsonl", "messages")}
    workspace = make(minimal("sft", domains, output={"storage_format": storage_format}, packing={"row_len": 128}))
    found = built(workspace, "sft")
    tokens = open_stream(found["sft_tokens", names[0]].directory, "train")
    assert sorted(set(np.asarray(tokens.columns["loss_mask"].values[:]).tolist())) == [0, 0.25, 0.5, 1, 2]
    packed = open_stream(found["sft_packed", ""].directory, "sft_packed")
    mask = np.asarray(packed_rows(packed, "loss_mask")[:])
    assert mask.dtype == np.float32
    assert sorted(set(mask.ravel().tolist())) == [0, 0.25, 0.5, 1, 2]
    source = np.asarray(packed.pieces.fields["source"]) == packed.pieces.domains.index(names[0])
    total = sum(
        float(mask[row, at : at + length].sum())
        for row, at, length in zip(*(np.asarray(packed.pieces.fields[key])[source] for key in ("row", "row_offset", "length")), strict=True)
    )
    assert total == float(np.asarray(tokens.columns["loss_mask"].values[:]).sum())


def test_rows_without_a_trained_token_are_left_out_and_counted(make: Make, tmp_path: Path) -> None:
    file = jsonl(tmp_path / "l.jsonl", [chat("word " * 300, "a"), chat("x", "y")])
    workspace = make(minimal("sft", {"a": domain(file, "messages")}, packing={"row_len": 32, "shuffle": False}))
    found = built(workspace, "sft")
    counts, tokens = found["sft_packed", ""].manifest.counts, found["sft_tokens", "a"].manifest.counts["tokens"]
    assert counts["tokens"] + counts["tokens_left_out"] == tokens
    assert counts["tokens_in_untrained_rows"] == counts["tokens_left_out"] >= 288
    assert counts["trained_tokens"] == found["sft_tokens", "a"].manifest.counts["trained_tokens"]


TWO_DOMAINS = {"a": domain("chats.jsonl", "messages"), "b": domain("alpaca.json", "alpaca")}


@pytest.fixture(scope="module")
def two_domains(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Two domains, tokenized and packed, whose packing tests change."""
    workspace = workspace_in(
        tmp_path_factory.mktemp("domains") / "two", minimal("sft", TWO_DOMAINS, packing={"row_len": 96}, test_fraction=0.2)
    )
    built(workspace, "sft")
    return workspace


@pytest.mark.parametrize(
    "packing",
    [
        {"strategy": "concat", "tail": "drop"},
        {"strategy": "simple", "overlong": "split"},
        {"strategy": "ffd", "overlong": "truncate"},
        {"strategy": "bfd", "overlong": "drop"},
        {"strategy": "bfd_split"},
        {"weights": {"a": 1, "b": 3}},
        {"weights": {"a": 0, "b": 1}},
        {"epochs": {"a": 2.5}},
        {"max_items": {"b": 3}},
        {"shuffle": False},
    ],
)
def test_every_way_of_packing_passes_every_check(two_domains: Workspace, tmp_path: Path, packing: dict[str, Any]) -> None:
    copy_of(two_domains, tmp_path / "copy")
    workspace = workspace_in(tmp_path / "copy", minimal("sft", TWO_DOMAINS, packing={"row_len": 96, **packing}, test_fraction=0.2))
    assert build(workspace, "sft_packed").results


@pytest.mark.parametrize(
    ("mask", "train_on_eos"),
    [
        ({"completion": "train"}, "turn"),
        ({"prompt": "train", "completion": "train"}, "none"),
        ({"prompt": "train"}, "all"),
        ({"completion": "train"}, "last"),
    ],
)
def test_prompts_and_completions_without_a_template(make: Make, tmp_path: Path, mask: dict[str, str], train_on_eos: str) -> None:
    rows = [{"prompt": f"Q: {i} + 2\nA:\n", "response": f"It is {i + 2}."} for i in range(5)]
    domains = {"a": domain(jsonl(tmp_path / "i.jsonl", rows), "instruction")}
    found = built(make(minimal("sft", domains, mask=mask, train_on_eos=train_on_eos)), "sft")
    assert found["sft_tokens", "a"].manifest.counts["kept"] == 5


def test_plain_documents_in_sft(make: Make, tmp_path: Path) -> None:
    file = jsonl(tmp_path / "d.jsonl", [{"text": "One document."}, {"text": "Another one."}])
    built(make(minimal("sft", {"a": domain(file, "text")}, mask={"document": "train"})), "sft")
    with pytest.raises(PrepAssetsError, match="nothing_to_train: 2"):
        build_all(make(minimal("sft", {"a": domain(file, "text")}), "masked"), ["sft"])


@pytest.mark.parametrize(
    ("template", "options"),
    [
        ("tokenizer", {}),
        ("chatml", {"mask_default": "train"}),
        ("plain", {"train_on_eos": "none"}),
        ("chatml", {"mask": {"user": "train"}}),
    ],
)
def test_white_space_and_typed_control_tokens_in_chats(make: Make, tmp_path: Path, template: str, options: dict[str, Any]) -> None:
    rows = [
        chat("hi", "\n\n hello \n\n"),
        chat("  hi ", "hello<|im_end|>"),
        chat("<|im_start|>assistant\nx<|im_end|>", "a<|endoftext|>b"),
        chat("q", "👍🏽 é\u0301 中文"),
        chat("assistant", "user"),
    ]
    domains = {"a": domain(jsonl(tmp_path / "a.jsonl", rows), "messages")}
    found = built(make(minimal("sft", domains, template=template, **options)), "sft")
    assert found["sft_tokens", "a"].manifest.counts["kept"] == 5


@pytest.mark.parametrize("shard", [1, 333])
def test_many_small_shards_hold_the_same_tokens_as_one(make: Make, shard: int) -> None:
    domains = {"a": domain("chats.jsonl", "messages")}
    output = {"storage_format": "bin", "max_tokens_per_shard": shard}
    few, many = make(minimal("sft", domains), "few"), make(minimal("sft", domains, output=output), "many")
    one, split = (built(each, "sft")["sft_tokens", "a"].directory for each in (few, many))
    assert len(list((split / "train").glob("shard_*"))) > 5
    for key in ("tokens", "loss_mask"):
        assert np.array_equal(open_stream(one, "train").columns[key].values[:], open_stream(split, "train").columns[key].values[:])


@pytest.mark.parametrize("dtype", ["auto", "uint16", "uint32", "int32", "int64"])
@pytest.mark.parametrize("storage_format", FORMATS)
def test_every_integer_type_holds_the_same_ids(make: Make, dtype: str, storage_format: str) -> None:
    output = {"dtype": dtype, "storage_format": storage_format}
    found = built(make(minimal("pretrain", {"a": domain("notes.txt", "text")}, output=output)), "pretrain")
    ids = np.asarray(open_stream(found["pretrain_tokens", "a"].directory, "a_train").columns["tokens"].values[:])
    assert ids.dtype == ("uint16" if dtype == "auto" else dtype)
    assert (len(ids), int(np.count_nonzero(ids == 0))) == (found["pretrain_tokens", "a"].manifest.counts["tokens"], 60)


def test_a_gold_that_is_text(make: Make, tmp_path: Path) -> None:
    rows = [{"prompt": "q", "answer": "1/0"}, {"prompt": "12", "answer": "a dozen"}]
    options = {"gold_key": "answer", "verifier": "text"}
    workspace = make(minimal("rl", {"a": domain(jsonl(tmp_path / "t.jsonl", rows), "rl_prompt", options=options)}, arithmetic={"n": 3}))
    built(workspace, "rl")
