"""No option is accepted and ignored: each field of each family's configuration changes what is built from a fitting input, or what is done.

`SHOWN` has one entry for every field: another value that shows it, and the options beside it that make the input fit. A field that is added to
`config/models.py` without an entry here fails. What means nothing beside other options is refused: `config/test_meaning.py`.
"""

from __future__ import annotations

import copy
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from prep_assets.assets.graph import assets_of
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import FAMILIES, Domain, Export
from prep_assets.defs.refresh import schedules
from prep_assets.defs.site import Site, WorkspaceResource
from prep_assets.errors import PrepAssetsError
from prep_assets.templates.certify import certify
from prep_assets_tests.assets.workspaces import TOKENIZER, jsonl, workspace_in

EXTRA = ("<image>", "<picture>", *(f"<|{name}_{part}|>" for name in ("fim", "cut") for part in ("prefix", "suffix", "middle")))
LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"


def messages(*texts: str, **more: Any) -> dict[str, Any]:
    """A chat of these texts, user and assistant by turns."""
    return {"messages": [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)], **more}


TAGGED = (
    "{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ m['content'] }}<|im_end|>{% endif %}{{ '\n' }}"
)
CALL = {"id": "1", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
TOOL = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {}}}}
CHATS = [
    *(messages(f"What is {n}?", f"It is {n}.", "And then?", f"Then comes {n + 1}.", source=f"s{n % 2}") for n in range(6)),
    messages("Count.", LONG, source="s0"),
    messages("Count.", LONG, source="s0"),
    messages("Type <|im_end|> here.", "I did.", source="s1"),
    messages("Why?", "<think>\nBecause.\n</think>\n\nSo.", source="s1"),
    messages("How?", "[[Slowly.]]So.", source="s1"),
]
THOUGHT = {"messages": [{"role": "user", "content": "1?"}, {"role": "assistant", "reasoning_content": "Hm.", "content": "1."}]}
CALLS = {
    "messages": [
        {"role": "user", "content": "1 + 1?"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "content": "2", "tool_call_id": "1"},
        {"role": "assistant", "content": "2."},
    ],
    "tools": [TOOL],
}
PICTURES = [{**messages(f"{mark} What is it?", "A cat."), "images": ["1.png"]} for mark in ("<image>", "Look: <image>")]
ROWS: Mapping[str, list[dict[str, Any]]] = {
    "pretrain": [
        *({"text": f" Document {n} of some, in a few words.", "source": f"s{n % 2}"} for n in range(12)),
        {"text": LONG, "source": "s0"},
        {"text": LONG, "source": "s0"},
        {"text": "Hi", "source": "s1"},
    ],
    "sft": CHATS,
    "preference": [
        *({"prompt": f"What is {n}?", "chosen": f"It is {n}.", "rejected": "No idea.", "source": f"s{n % 2}"} for n in range(12)),
        {"prompt": "Count.", "chosen": LONG, "rejected": "No.", "source": "s0"},
        {"prompt": "Count.", "chosen": LONG, "rejected": "No.", "source": "s0"},
        {"prompt": "Why?", "chosen": "<think>\nBecause.\n</think>\n\nSo.", "rejected": "[[Slowly.]]No.", "source": "s1"},
    ],
    "contrastive": [
        *({"query": f"What is {n}?", "positive": f"It is {n}.", "negative": "No idea.", "source": f"s{n % 2}"} for n in range(12)),
        {"query": "Count.", "positive": LONG, "negative": "No.", "source": "s0"},
        {"query": "Count.", "positive": LONG, "negative": "No.", "source": "s0"},
    ],
    "rl": [
        *({"prompt": f"What is {n} + 1?", "gold": f"{n + 1}", "source": f"s{n % 2}"} for n in range(12)),
        {"prompt": LONG, "gold": "17", "source": "s0"},
        {"prompt": LONG, "gold": "17", "source": "s0"},
    ],
}
SCHEMAS = {"pretrain": "text", "sft": "messages", "preference": "preference", "rl": "rl_prompt", "contrastive": "contrastive"}
GROUPS = [
    {"prompt": "Hi", "responses": ["A", "B"], "rewards": [0, 1]},
    *(
        {"prompt": f"What is {n}?", "responses": [f"It is {n}.", "<think>\nHm.\n</think>\n\nNo.", "[[Hm.]]No."], "rewards": [1, 0, 0]}
        for n in range(4)
    ),
]
OWN = """
from prep_assets.samples import ASSISTANT, USER, Contrast, Pair, Prompt, Sample, turn

def chat(row):
    return Sample((turn(USER, "Say it."), turn(ASSISTANT, row["text"])))

def weights(sample):
    return [None if turn.role == "user" else 0.5 for turn in sample.turns]

def pair(row):
    return Pair((turn(USER, "Say it."),), (turn(ASSISTANT, row["text"]),), (turn(ASSISTANT, "No."),))

def contrast(row):
    return Contrast(row["text"], ("Yes.",))

def prompt(row):
    return Prompt((turn(USER, row["text"]),), "1")
"""
OWN_SCHEMAS = {
    "pretrain": "text",
    "sft": "walk_schemas:chat",
    "preference": "walk_schemas:pair",
    "rl": "walk_schemas:prompt",
    "contrastive": "walk_schemas:contrast",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with every input; a module with schemas of the user's own is importable from it."""
    folder = tmp_path_factory.mktemp("walk")
    for name in ("tokenizer", "fewer_merges"):
        shutil.copytree(TOKENIZER, folder / name)
        path = folder / name / "tokenizer.json"
        spec = json.loads(path.read_text("utf-8"))
        first = 1 + max(*(token["id"] for token in spec["added_tokens"]), *spec["model"]["vocab"].values())
        spec["added_tokens"] += [{**spec["added_tokens"][0], "id": first + n, "content": text} for n, text in enumerate(EXTRA)]
        if name == "fewer_merges":
            spec["model"]["merges"] = spec["model"]["merges"][:200]
        path.write_text(json.dumps(spec, ensure_ascii=False), "utf-8")
    for family, rows in ROWS.items():
        jsonl(folder / f"{family}.jsonl", rows)
        jsonl(folder / f"{family}_mood.jsonl", [{**row, "mood": "calm"} for row in rows])
        jsonl(
            folder / f"{family}_more.jsonl",
            [json.loads(json.dumps(row).replace("What", "Which").replace("Document", "Text")) for row in rows],
        )
    jsonl(folder / "groups.jsonl", GROUPS)
    jsonl(folder / "ids.jsonl", [{"input_ids": [65, 66, 67], "labels": [-100, 66, 67]}])
    jsonl(folder / "long_question.jsonl", [messages(LONG, "Yes.")])
    jsonl(folder / "thoughts.jsonl", [THOUGHT])
    jsonl(folder / "second_thoughts.jsonl", [{"messages": THOUGHT["messages"] * 2}])
    jsonl(folder / "calls.jsonl", [CALLS])
    jsonl(folder / "pictures.jsonl", PICTURES)
    jsonl(folder / "documents.jsonl", [{"images": ["1.png", None], "texts": [None, f"Picture {n} of a cat."]} for n in range(2)])
    jsonl(folder / "benchmark.jsonl", [{"question": LONG}])
    jsonl(folder / "ten_words.jsonl", [{"question": " ".join(LONG.split()[:10])}])
    for first in ("a", "first"):
        jsonl(folder / f"{first}_and_b.jsonl", [{"text": f"Text {n}.", "source": (first, "b")[n % 2]} for n in range(8)])
    (folder / "lines.txt").write_text("One line.\nAnother line.\n", "utf-8")
    (folder / "unnamed").write_text((folder / "pretrain.jsonl").read_text("utf-8"), "utf-8")
    (folder / "odd.jinja").write_text(
        "{% for m in messages %}<|im_start|>{{ m['role'] }}{% if loud %}!{% endif %}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant{% if loud %}!{% endif %}\n{% endif %}",
        "utf-8",
    )
    tagged = (folder / "odd.jinja").read_text("utf-8").replace("{{ m['content'] }}<|im_end|>\n", TAGGED)
    (folder / "tagged.jinja").write_text(tagged, "utf-8")
    for name in ("here", "there"):
        (folder / name).mkdir()
        (folder / name / "1.png").write_bytes(name.encode())
    (folder / "walk_schemas.py").write_text(OWN, "utf-8")
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    sys.modules.pop("walk_schemas", None)


# -- what shows an option -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class By:
    """Stores are others with `value` than with what `beside` alone says. A text that begins with ``@`` is a file of the folder.

    Attributes:
        beside: paths and values of other options.
        stops: the build stops without `value`, and says this.
    """

    value: Any
    beside: Mapping[str, Any] = field(default_factory=dict)
    stops: str = ""


@dataclass(frozen=True)
class Doing:
    """What is done is another thing: `seen` of a workspace differs."""

    value: Any
    seen: Callable[[Workspace, str], Any]
    beside: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Elsewhere:
    """Shown by another test of the suite."""

    test: str


def _schedule(workspace: Workspace, family: str) -> Any:
    site = Site(WorkspaceResource(configs=str(workspace.configs), stores=str(workspace.stores)))
    return [(each.cron_schedule, each.execution_timezone) for each in schedules(site, [family])]


def _engine(workspace: Workspace, family: str) -> Any:
    return type(workspace.engines(workspace.family(FAMILIES[family])).first).__name__


def _derivations(workspace: Workspace, family: str) -> Any:
    return certify(workspace.template(workspace.family(FAMILIES[family]))).proofs


def _from_hub(workspace: Workspace, family: str) -> Any:
    """What is asked of the hub; nothing without a revision."""

    def load(*args: Any, revision: str, **options: Any) -> Any:
        raise PrepAssetsError(f"asked for {revision}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("prep_assets.assets.tokenizers.folder_of", load)
        try:
            return workspace.vocabulary(workspace.family(FAMILIES[family]))
        except PrepAssetsError as error:
            return str(error)


FROM: Mapping[str, tuple[str, dict[str, Any], str]] = {
    "pretrain": (
        "pretrain_tokens",
        {"exports": {"e": {"from": "pretrain_raw", "to": "astrai"}}},
        "no asset 'pretrain_raw' that can be exported",
    ),
    "sft": ("sft_packed", {"exports": {"e": {"from": "sft_tokens", "to": "astrai"}}}, ""),
    "preference": ("preferences", {"exports": {"e": {"from": "preference_tokens", "to": "hf_arrow"}}}, ""),
    "contrastive": (
        "contrastive",
        {"exports": {"e": {"from": "contrastive_raw", "to": "hf_arrow"}}},
        "no asset 'contrastive_raw' that can be exported",
    ),
    "rl": ("rl_prompts", {"exports": {"e": {"from": "rl_groups", "to": "hf_arrow"}}}, ""),
}


def _reader(workspace: Workspace, family: str) -> Any:
    """Which of the two readers opens the tokenizer's files."""

    def reads(name: str) -> Callable[..., Any]:
        def read(*args: Any) -> Any:
            raise PrepAssetsError(name)

        return read

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("prep_assets.assets.tokenizers._OPENED", {})
        for name in ("from_file", "from_transformers"):
            patch.setattr(f"prep_assets.assets.tokenizers.{name}", reads(name))
        with pytest.raises(PrepAssetsError) as caught:
            workspace.vocabulary(workspace.family(FAMILIES[family]))
        return str(caught.value)


MEANS_NOTHING = "prep_assets_tests/config/test_meaning.py::test_an_option_of_a_domain_that_means_nothing_is_refused"
IDS = {"domains.*.files": ["@ids.jsonl"], "domains.*.schema": "tokenized"}


def of_all(family: str) -> dict[str, By | Doing | Elsewhere]:
    """Options that all families have."""
    export = {
        "pretrain": "pretrain_tokens",
        "sft": "sft_tokens",
        "preference": "preference_tokens",
        "rl": "rl_groups",
        "contrastive": "contrastive",
    }[family]
    other = {
        "pretrain": "text_read_hook",
        "sft": "walk_schemas:chat",
        "preference": "walk_schemas:pair",
        "rl": "walk_schemas:prompt",
        "contrastive": "walk_schemas:contrast",
    }[family]
    lines: dict[str, Any] = {"domains.*.files": ["@lines.txt"], "domains.*.schema": "walk_schemas:nothing"} if ":" in other else {}
    keyed: dict[str, Any] = {"domains.*.schema": OWN_SCHEMAS[family], "domains.b": {}}
    found = {"domains.*.schema": OWN_SCHEMAS[family], "domains.*.files": ["@first_and_b.jsonl"], "domains.*.domain_key": "source"}
    exported = {"exports": {"e": {"from": export, "to": "hf_arrow" if family == "contrastive" else "astrai"}}}
    second = {
        "pretrain": "@pretrain_more.jsonl",
        "sft": "@sft_more.jsonl",
        "preference": "@preference_more.jsonl",
        "rl": "@rl_more.jsonl",
        "contrastive": "@contrastive_more.jsonl",
    }
    options = {
        "pretrain": {"strip": True},
        "sft": {"roles": {"user": "system"}},
        "preference": {"system_key": "source"},
        "rl": {"verifier": "text"},
        "contrastive": {"instruction_key": "source"},
    }
    return {
        "tokenizer": By("@fewer_merges"),
        "tokenizer_revision": Doing("0" * 40, _from_hub, {"tokenizer": "somebody/something"}),
        "tokenizer_loader": Doing("transformers", _reader),
        "tokenizer_class": Elsewhere("prep_assets_tests/tokenization/test_code_tokenizer.py::test_stores_hold_its_own_encoding"),
        "pad_vocab_to": By(70_000, {"output.dtype": "auto"}),
        "domains.*.files": By([second[family]]),
        "domains.*.schema": By(other, lines, stops="walk_schemas" if lines else ""),
        "domains.*.options": By(options[family]),
        "domains.*.test_files": By([second[family]]),
        "domains.*.format": By("jsonl", {"domains.*.files": [f"@{family}.data"]}, stops="format"),
        "domains.*.txt": By("file", {"domains.*.files": ["@lines.txt"], "domains.*.schema": OWN_SCHEMAS[family]}),
        "domains.*.domain_key": By("source", {**keyed, "domains.*.files": ["@a_and_b.jsonl"]}, stops="no domain declares: 'a'"),
        "domains.*.domain_value": By(
            "first",
            {**keyed, "domains.*.files": ["@first_and_b.jsonl"], "domains.*.domain_key": "source"},
            stops="no domain declares: 'first'",
        ),
        "domains.*.domains": By("auto", found, stops="no domain declares: 'b'"),
        "domains.*.max_domains": By(2, {**found, "domains.*.domains": "auto", "domains.*.max_domains": 1}, stops="max_domains is 1"),
        "domains.*.weigh": By("walk_schemas:weights") if family in ("sft", "pretrain") else Elsewhere(MEANS_NOTHING),
        "domains.*.tokenized_by": By("@tokenizer", IDS, stops="tokenized_by: needed") if family == "sft" else Elsewhere(MEANS_NOTHING),
        "domains.*.ignore": By(["mood"], {"domains.*.files": [f"@{family}_mood.jsonl"]}, stops=r"ignore: \[mood\]"),
        "domains.*.where": By({"source": "s0"}),
        "domains.*.max_items": By(3),
        "preprocessing.max_seq_len": By({"pretrain": 15, "sft": 34, "preference": 24, "rl": 20, "contrastive": 20}[family]),
        "preprocessing.deduplicate": By(False),
        "decontaminate.files": By(["@benchmark.jsonl"]),
        "decontaminate.words": By(8, {"decontaminate.files": ["@ten_words.jsonl"]}),
        "output.storage_format": By("bin"),
        "output.dtype": By("int64"),
        "output.max_tokens_per_shard": By(60, {"output.storage_format": "bin"}),
        "refresh.every": Doing("1 2 * * *", _schedule),
        "refresh.timezone": Doing("Europe/Berlin", _schedule),
        "refresh.fresh_for": Elsewhere(
            "prep_assets_tests/defs/test_failures.py::test_assets_are_fresh_for_as_long_as_the_configuration_says"
        ),
        "exports": By(exported["exports"]),
        "exports.*.from": By(*FROM[family]),
        "exports.*.to": By(
            {"pretrain": "mds", "sft": "mds", "preference": "hf_arrow", "rl": "hf_arrow", "contrastive": "flag_embedding"}[family], exported
        ),
        "exports.*.stream": By(
            {"preference": "rejected", "rl": "test", "contrastive": "contrastive_test"}.get(family, "dev"),
            {"test_fraction": 0.4, **exported},
        ),
        "exports.*.options": By({"split": "held"}, {"exports": {"e": {"from": export, "to": "hf_arrow"}}}),
        "on_missing": Elsewhere("prep_assets_tests/defs/test_building.py::test_on_missing_fail_stops_with_the_commands"),
        "engine": Doing("reference", _engine),
        "cluster.kind": Elsewhere("prep_assets_tests/assets/test_workers.py::test_the_cluster_is_the_one_that_the_configuration_names"),
        "cluster.address": Elsewhere("prep_assets_tests/assets/test_workers.py::test_the_cluster_is_the_one_that_the_configuration_names"),
        "cluster.shards": Elsewhere("prep_assets_tests/assets/test_workers.py::test_bytes_do_not_depend_on_the_size_of_shards"),
        "licence": Elsewhere("prep_assets_tests/neighbours/test_description.py::test_licences"),
        "domains.*.licence": Elsewhere("prep_assets_tests/neighbours/test_description.py::test_licences"),
        "workers": Elsewhere("prep_assets_tests/assets/test_workers.py::test_the_number_of_workers_is_what_the_configuration_says"),
    }


CHAT: dict[str, By | Doing | Elsewhere] = {
    "template": By("vicuna"),
    "template_options": By({"loud": True}, {"template": "@odd.jinja"}),
    "training_template": Doing("@tagged.jinja", _derivations, {"template": "@odd.jinja"}),
    "reasoning": By("inline", {"template": "qwen3"}),
    "reasoning_tags": By([["[[", "]]"]], {"template": "qwen3"}),
}
IMAGES = {"sft": ("@pictures.jsonl", "messages"), "pretrain": ("@documents.jsonl", "interleaved")}


def of_images(family: str) -> dict[str, By | Doing | Elsewhere]:
    """Options about images."""
    rows, schema = IMAGES[family]
    read = {"domains.p": {"files": [rows], "schema": schema, "image_dir": "@here"}}
    return {
        "domains.*.image_dir": By(
            "@there", {"domains.*.files": [rows], "domains.*.schema": schema, "image_token": "<image>", "domains.*.image_dir": "@here"}
        ),
        "image_token": By("<picture>", {"image_token": "<image>", **read}),
        "image_patches": By(3, {"image_token": "<image>", **read}),
        "image_tokens": By({"rule": "fixed", "tokens": 3}, {"image_token": "<image>", **read}),
    }


LONG_QUESTION = {"domains.*.files": ["@long_question.jsonl"]}
CUT = {"preprocessing.fim.rate": 1.0}
MIXED = {"domains.b": {"files": ["@sft_more.jsonl"], "schema": "messages"}}
SHOWN: Mapping[str, Mapping[str, By | Doing | Elsewhere]] = {
    "pretrain": {
        **of_all("pretrain"),
        **of_images("pretrain"),
        "test_fraction": By(0.4),
        "append_eod": By(False),
        "split_sentences": Elsewhere("prep_assets_tests/assets/test_sentences.py::test_every_sentence_is_tokenized_for_itself"),
        "bos": By("true"),
        "preprocessing.min_chars": By(5),
        "preprocessing.max_chars": By(60),
        "preprocessing.fim.rate": By(0.5),
        "preprocessing.fim.spm_rate": By(0.0, CUT),
        "preprocessing.fim.prefix_token": By("<|cut_prefix|>", CUT),
        "preprocessing.fim.suffix_token": By("<|cut_suffix|>", CUT),
        "preprocessing.fim.middle_token": By("<|cut_middle|>", CUT),
        "preprocessing.fim.seed": By(1, CUT),
    },
    "sft": {
        **of_all("sft"),
        **CHAT,
        **of_images("sft"),
        "mask": By({"user": "train"}),
        "mask_default": By("train", {"mask": {"user": "mask"}}, stops="nothing_to_train"),
        "train_on_eos": By("none"),
        "train_turns": By("last"),
        "expand": By("turns", {"template": "qwen3", "domains.*.files": ["@second_thoughts.jsonl"]}),
        "train_thinking": By(False, {"template": "qwen3", "domains.*.files": ["@thoughts.jsonl"]}),
        "train_tool_calls": By(False, {"template": "qwen3", "domains.*.files": ["@calls.jsonl"]}),
        "train_headers": By(True),
        "special_in_content": By("strip"),
        "truncation": By("end", {"preprocessing.max_seq_len": 30}),
        "truncation_keeps_stop": By(True, {"preprocessing.max_seq_len": 20, "truncation": "end"}),
        "truncation_keeps": By({"user": {"part": "end"}}, {"preprocessing.max_seq_len": 30, "truncation": "prompt", **LONG_QUESTION}),
        "test_fraction": By(0.4),
        "packing.strategy": By("ffd"),
        "packing.row_len": By(256),
        "packing.seed": By(1),
        "packing.shuffle": By(False),
        "packing.tail": By("drop", {"packing.row_len": 64}),
        "packing.overlong": By("drop", {"packing.row_len": 30, "packing.strategy": "ffd"}, stops="longer than a row|overlong"),
        "packing.weights": By({"a": 1, "b": 3}, MIXED),
        "packing.epochs": By({"a": 2.0}),
        "packing.max_items": By({"a": 2}),
    },
    "preference": {
        **of_all("preference"),
        **CHAT,
        "domains.*.image_dir": Elsewhere(MEANS_NOTHING),
        "max_per_source": By(3),
        "test_fraction": By(0.4),
        "seed": By(1),
        "shuffle": By(False),
        "truncation": By("end", {"preprocessing.max_seq_len": 24}),
        "form": By("messages"),
    },
    "contrastive": {
        **of_all("contrastive"),
        "tokenizer": By("@fewer_merges", {"preprocessing.max_seq_len": 10}),
        "domains.*.image_dir": Elsewhere(MEANS_NOTHING),
        **dict.fromkeys(
            ("pad_vocab_to", "output.storage_format", "output.dtype", "output.max_tokens_per_shard", "engine"),
            Elsewhere("prep_assets_tests/config/test_meaning.py::test_an_option_that_means_nothing_is_refused"),
        ),
        "test_fraction": By(0.4),
    },
    "rl": {
        **of_all("rl"),
        **CHAT,
        "domains.*.image_dir": Elsewhere(MEANS_NOTHING),
        "test_fraction": By(0.4),
        "form": By("messages"),
        "arithmetic.n": By(7),
        "arithmetic.largest": By(7),
        "arithmetic.seed": By(7),
        "arithmetic.levels": By(["add"]),
        "arithmetic.unique": By(True),
    },
}


def fields(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Path of every field, as a configuration writes it; ``*`` stands for a name."""
    for name, each in model.model_fields.items():
        inner = {"domains": Domain, "exports": Export}.get(name) if not prefix else None
        if isinstance(each.default, BaseModel):
            yield from fields(type(each.default), f"{prefix}{name}.")
        elif inner is not None:
            yield from ([name] if name == "exports" else [])
            yield from fields(inner, f"{name}.*.")
        else:
            yield prefix + (each.alias or name)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_field_has_an_entry(family: str) -> None:
    assert set(fields(FAMILIES[family])) == set(SHOWN[family])


@pytest.mark.parametrize("test", sorted({each.test for shown in SHOWN.values() for each in shown.values() if isinstance(each, Elsewhere)}))
def test_what_is_shown_elsewhere_is_there(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name}(" in (Path(__file__).resolve().parents[2] / file).read_text("utf-8")


# -- building -----------------------------------------------------------------------------------------------------------------------------


def configuration(family: str, files: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """A small configuration with options set by their paths."""
    own = {"files": [f"@{family}.jsonl"], "schema": SCHEMAS[family]}
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


def outcome(family: str, folder: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """What every store of the family holds: hash of its content, counts, hash of its quarantine."""
    workspace = workspace_in(folder, {family: dict(values)})
    found = {}
    for name, asset in assets_of(workspace).items():
        for partition in asset.partitions(workspace):
            # what a store holds is in question here, not whether its checks hold
            store = asset.build(workspace, partition).propose()
            workspace.place(name, partition).accept(store, {})
            found[f"{name}[{partition}]"] = (store.manifest.content_hash, store.manifest.counts, store.manifest.quarantine)
    return found


CASES = [(family, path) for family, shown in SHOWN.items() for path, each in shown.items() if not isinstance(each, Elsewhere)]
PLAIN: dict[str, Any] = {}
"""Outcomes that are asked for often: without any option."""


@pytest.mark.parametrize(("family", "path"), CASES, ids=[f"{family}-{path}" for family, path in CASES])
def test_an_option_shows(files: Path, tmp_path: Path, family: str, path: str) -> None:
    shown = SHOWN[family][path]
    assert not isinstance(shown, Elsewhere)
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
            outcome(family, tmp_path / "0", without)
        assert outcome(family, tmp_path / "1", with_it)
        return
    key = json.dumps([family, without])
    before = PLAIN.setdefault(key, None) or outcome(family, tmp_path / "0", without)
    PLAIN[key] = before
    after = outcome(family, tmp_path / "1", with_it)
    assert {name: after[name] for name in after if name in before} != before if path != "exports" else set(before) < set(after)
