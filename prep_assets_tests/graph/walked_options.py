"""What shows each option of a configuration: another value, and the options beside it that make the input fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from prep_assets.caches import CACHES
from prep_assets.config.models import FAMILIES
from prep_assets.errors import PrepAssetsError
from prep_assets.extensions.dagster.io_manager import StoreIOManager
from prep_assets.extensions.dagster.sensors import schedules
from prep_assets.extensions.dagster.site import Site, WorkspaceResource
from prep_assets.graph.graph import ASSETS
from prep_assets.pipeline.workspace import Workspace
from prep_assets.samples import Sample
from prep_assets.text.certify import certify
from prep_assets_tests.graph.families import FAMILIES as TRIED
from prep_assets_tests.graph.families import LAST, OF_TEXT
from prep_assets_tests.graph.walked_inputs import NAMED, OWN_SCHEMAS


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
class Idle:
    """Means nothing to the family: `value` is refused."""

    value: Any


@dataclass(frozen=True)
class Elsewhere:
    """Shown by another test of the suite."""

    test: str


Shown = By | Doing | Idle | Elsewhere


def _schedule(workspace: Workspace, family: str) -> Any:
    site = Site(WorkspaceResource(configs=str(workspace.configs)), StoreIOManager(store_dir=str(workspace.stores)))
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
        patch.setattr("prep_assets.pipeline.workspace.folder_of", load)
        try:
            return workspace.vocabulary(workspace.family(FAMILIES[family]))
        except PrepAssetsError as error:
            return str(error)


def _reader(workspace: Workspace, family: str) -> Any:
    """Which of the two readers opens the tokenizer's files."""

    def reads(name: str) -> Callable[..., Any]:
        def read(*args: Any) -> Any:
            raise PrepAssetsError(name)

        return read

    with pytest.MonkeyPatch.context() as patch:
        CACHES["tokenizers"].clear()
        for name in ("from_file", "from_transformers"):
            patch.setattr(f"prep_assets.pipeline.workspace.{name}", reads(name))
        with pytest.raises(PrepAssetsError) as caught:
            workspace.vocabulary(workspace.family(FAMILIES[family]))
        return str(caught.value)


IDS = {"domains.*.files": ["@ids.jsonl"], "domains.*.schema": "tokenized"}
OF_TOKENS = {
    "pad_vocab_to": Idle(70_000),
    "output.storage_format": Idle("bin"),
    "output.dtype": Idle("int64"),
    "output.max_tokens_per_shard": Idle(60),
    "engine": Idle("reference"),
}
"""To stores that hold no tokens they have no effect."""


def of_all(family: str) -> dict[str, Shown]:
    """Options that all families have."""
    model, tried, last, own = FAMILIES[family], TRIED[family], LAST[family], OWN_SCHEMAS[family]
    lines = {"domains.*.files": ["@lines.txt"], "domains.*.schema": "walk_schemas:nothing"}
    keyed: dict[str, Any] = {"domains.*.schema": own, "domains.b": {}}
    found = {"domains.*.schema": own, "domains.*.files": ["@first_and_b.jsonl"], "domains.*.domain_key": "source"}
    exported = {"exports": {"e": {"from": last, "to": "hf_arrow"}}}
    more = [f"@{family}_more.jsonl"]
    return {
        "tokenizer": By("@fewer_merges"),
        "tokenizer_revision": Doing("0" * 40, _from_hub, {"tokenizer": "somebody/something"}),
        "tokenizer_loader": Doing("transformers", _reader),
        "tokenizer_class": Elsewhere("prep_assets_tests/tokenization/test_vocabulary.py::test_stores_hold_its_own_encoding"),
        "pad_vocab_to": By(70_000, {"output.dtype": "auto"}),
        "domains.*.files": By(more),
        "domains.*.schema": By("text_read_hook") if own == tried.schema else By(own, lines, stops="walk_schemas"),
        "domains.*.options": By(tried.options),
        "domains.*.test_files": By(more),
        "domains.*.format": By("jsonl", {"domains.*.files": [f"@{family}.data"]}, stops="format"),
        "domains.*.txt": By("file", {"domains.*.files": ["@lines.txt"], "domains.*.schema": own}),
        "domains.*.domain_key": By("source", {**keyed, "domains.*.files": ["@a_and_b.jsonl"]}, stops="no domain declares: 'a'"),
        "domains.*.domain_value": By(
            "first",
            {**keyed, "domains.*.files": ["@first_and_b.jsonl"], "domains.*.domain_key": "source"},
            stops="no domain declares: 'first'",
        ),
        "domains.*.domains": By("auto", found, stops="no domain declares: 'b'"),
        "domains.*.max_domains": By(2, {**found, "domains.*.domains": "auto", "domains.*.max_domains": 1}, stops="max_domains is 1"),
        "domains.*.speaker_names": By("write", {"domains.*.files": [f"@{family}_named.jsonl"]}, stops="speaker_names: write")
        if family in NAMED
        else Idle("write"),
        "domains.*.countries": Elsewhere(
            "prep_assets_tests/quality/test_redaction.py::test_the_countries_of_a_domain_decide_which_national_numbers_are_phones"
        ),
        "domains.*.redact": Elsewhere(
            "prep_assets_tests/quality/test_redaction.py::test_rows_that_differ_in_private_data_alone_are_duplicates"
        ),
        "domains.*.weigh": (By if model.form_of_rows is Sample else Idle)("walk_schemas:weights"),
        "domains.*.tokenized_by": By("@tokenizer", IDS, stops="tokenized_by: needed") if family == "sft" else Idle("@tokenizer"),
        "domains.*.image_dir": Idle("@here"),
        "domains.*.ignore": By(["mood"], {"domains.*.files": [f"@{family}_mood.jsonl"]}, stops=r"ignore: \[mood\]"),
        "domains.*.where": By({"source": "s0"}),
        "domains.*.max_items": By(3),
        "preprocessing.max_seq_len": By(tried.length),
        "decontaminate.files": By(["@benchmark.jsonl"]),
        "quality.steps": Elsewhere(
            "prep_assets_tests/quality/test_verdicts.py::test_what_a_step_drops_is_refused_downstream_with_its_reason"
        ),
        "quality.max_refused": Elsewhere(
            "prep_assets_tests/quality/test_verdicts.py::test_a_share_of_refusals_that_is_too_large_stops_the_build"
        ),
        "quality.licences": Elsewhere(
            "prep_assets_tests/quality/test_licences.py::test_a_row_of_a_licence_that_is_not_allowed_stops_what_is_made_of_it"
        ),
        "quality.bounds": Elsewhere("prep_assets_tests/quality/test_bounds.py::test_bounds_warn_or_block"),
        "decontaminate.words": By(8, {"decontaminate.files": ["@ten_words.jsonl"]}),
        "output.dtype": By("int64"),
        "output.max_tokens_per_shard": By(60, {"output.storage_format": "bin"}),
        "refresh.every": Doing("1 2 * * *", _schedule),
        "refresh.timezone": Doing("Europe/Berlin", _schedule),
        "refresh.fresh_for": Elsewhere(
            "prep_assets_tests/extensions/dagster/test_gone.py::test_assets_are_fresh_for_as_long_as_the_configuration_says"
        ),
        "exports": By(exported["exports"]),
        "exports.*.from": By(last, {"exports": {"e": {"from": f"{family}_raw", "to": "hf_arrow"}}}, stops="no asset .* can be exported"),
        "exports.*.to": By(tried.format, exported),
        "exports.*.stream": By([*ASSETS[last].streams][1], {"test_fraction": 0.4, **exported}),
        "exports.*.options": By({"split": "held"}, exported),
        "on_missing": Elsewhere("prep_assets_tests/extensions/dagster/test_building.py::test_on_missing_fail_stops_with_the_commands"),
        "engine": Doing("reference", _engine),
        "cluster.kind": Elsewhere("prep_assets_tests/graph/test_workers.py::test_the_cluster_is_the_one_that_the_configuration_names"),
        "cluster.address": Elsewhere("prep_assets_tests/graph/test_workers.py::test_the_cluster_is_the_one_that_the_configuration_names"),
        "cluster.shards": Elsewhere("prep_assets_tests/graph/test_workers.py::test_bytes_do_not_depend_on_the_size_of_shards"),
        "licence": Elsewhere("prep_assets_tests/extensions/neighbours/test_description.py::test_licences"),
        "domains.*.licence_key": Elsewhere(
            "prep_assets_tests/quality/test_licences.py::test_counts_of_card_and_attestation_are_those_of_the_rows"
        ),
        "domains.*.licence": Elsewhere("prep_assets_tests/extensions/neighbours/test_description.py::test_licences"),
        "workers": Elsewhere("prep_assets_tests/graph/test_workers.py::test_the_number_of_workers_is_what_the_configuration_says"),
        **(OF_TOKENS if family in OF_TEXT else {}),
    }


CHAT: dict[str, Shown] = {
    "template": By("vicuna"),
    "template_options": By({"loud": True}, {"template": "@odd.jinja"}),
    "training_template": Doing("@tagged.jinja", _derivations, {"template": "@odd.jinja"}),
    "reasoning": By("inline", {"template": "qwen3"}),
    "reasoning_tags": By([["[[", "]]"]], {"template": "qwen3"}),
    "calls": By("inline", {"template": "qwen3"}),
}
IMAGES = {"sft": ("@pictures.jsonl", "messages"), "pretrain": ("@documents.jsonl", "interleaved")}


def of_images(family: str) -> dict[str, Shown]:
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


HEARD = {
    "audio_token": "<image>",
    "audio_tokens": {"rule": "fixed", "tokens": 2},
    "domains.p": {"files": ["@recordings.jsonl"], "schema": "messages", "image_dir": "@here"},
}
SEEN = {
    "video_token": "<image>",
    "video_tokens": {"rule": "fixed", "tokens": 2},
    "domains.p": {"files": ["@films.jsonl"], "schema": "messages", "image_dir": "@here"},
}
LONG_QUESTION = {"domains.*.files": ["@long_question.jsonl"]}
CUT = {"preprocessing.fim.rate": 1.0}
MIXED = {"domains.b": {"files": ["@sft_more.jsonl"], "schema": "messages"}}
SHOWN: Mapping[str, Mapping[str, Shown]] = {
    "pretrain": {
        **of_all("pretrain"),
        **of_images("pretrain"),
        "test_fraction": By(0.4),
        "split_sentences": Elsewhere("prep_assets_tests/graph/test_document_ends.py::test_every_sentence_is_tokenized_for_itself"),
        "bos": By("true"),
        "blend": Elsewhere("prep_assets_tests/graph/test_blends.py::test_another_weight_writes_an_index_and_nothing_else"),
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
        "audio_token": By("<picture>", HEARD),
        "audio_tokens": By({"rule": "fixed", "tokens": 3}, HEARD),
        "video_token": By("<picture>", SEEN),
        "video_tokens": By({"rule": "fixed", "tokens": 3}, SEEN),
        "mask": By({"user": "train"}),
        "mask_default": By("train", {"mask": {"user": "mask"}}, stops="nothing_to_train"),
        "train_on_eos": By("none"),
        "expand": By("turns", {"template": "qwen3", "domains.*.files": ["@second_thoughts.jsonl"]}),
        "train_thinking": By(False, {"template": "qwen3", "domains.*.files": ["@thoughts.jsonl"]}),
        "train_tool_calls": By(False, {"template": "qwen3", "domains.*.files": ["@calls.jsonl"]}),
        "special_in_content": By("strip"),
        "truncation": By("end", {"preprocessing.max_seq_len": 30}),
        "truncation_keeps_stop": By(True, {"preprocessing.max_seq_len": 20, "truncation": "end"}),
        "truncation_keeps": By({"user": {"part": "end"}}, {"preprocessing.max_seq_len": 30, "truncation": "prompt", **LONG_QUESTION}),
        "test_fraction": By(0.4),
        "blend": Elsewhere("prep_assets_tests/graph/test_blends.py::test_conversations"),
        "packing.strategy": By("ffd"),
        "packing.row_len": By(256),
        "packing.seed": By(1),
        "packing.tail": By("drop", {"packing.row_len": 64}),
        "packing.overlong": By("drop", {"packing.row_len": 30, "packing.strategy": "ffd"}, stops="longer than a row|overlong"),
        "packing.weights": By({"a": 1, "b": 3}, MIXED),
        "packing.epochs": By({"a": 2.0}),
        "packing.max_items": By({"a": 2}),
        "packing.buckets": By([30], {"packing.strategy": "ffd"}),
        "packing.align": By({"context_parallel": 2}, {"packing.strategy": "ffd", "packing.row_len": 256}),
        "packing.balance": By(2, {"packing.row_len": 64}),
    },
    "preference": {
        **of_all("preference"),
        **CHAT,
        "max_per_source": By(3),
        "test_fraction": By(0.4),
        "seed": By(1),
        "truncation": By("end", {"preprocessing.max_seq_len": 24}),
    },
    **{
        family: {**of_all(family), "tokenizer": By("@fewer_merges", {"preprocessing.max_seq_len": 10}), "test_fraction": By(0.4)}
        for family in OF_TEXT
    },
    "rl": {
        **of_all("rl"),
        **CHAT,
        "test_fraction": By(0.4),
        "arithmetic.n": By(7),
        "arithmetic.largest": By(7),
        "arithmetic.seed": By(7),
        "arithmetic.levels": By(["add"]),
    },
}
