"""Bugs planted in code that builds, in memory: the checks of the build itself must stop it, however few rows a store has."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prep_assets.caches import CACHES
from prep_assets.config.mask import MaskPolicy
from prep_assets.config.models import Pretrain
from prep_assets.data.quarantine import Quarantine
from prep_assets.errors import CheckFailed, PrepAssetsError, Refused
from prep_assets.extensions.exports.compared import SAMPLE
from prep_assets.extensions.exports.megatron import IndexedWriter
from prep_assets.graph.graph import asset_named
from prep_assets.pipeline import conversations, rendering
from prep_assets.pipeline.asset import DERIVATIONS_DIFFER, disagreement
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs import chat_blocks
from prep_assets.proofs import reference_ids as ids_again
from prep_assets.proofs.accounting import Fields
from prep_assets.samples import ASSISTANT, USER
from prep_assets.schemas.reader import Reader as SchemaReader
from prep_assets.stores.verification import write_json
from prep_assets.text import certify, spans
from prep_assets.text.conversation import treat
from prep_assets.text.forms import CompiledForm, render_forms
from prep_assets.text.ids import Flat
from prep_assets.text.template import ChatTemplate
from prep_assets_tests.graph.workspaces import build, domain, jsonl, make, minimal, workspace_in

ROWS = 60
TURNS = ("What is {}?", "It is the number {}.", "And {} squared?", "That is {} times itself.")
CHATS = [
    {"messages": [{"role": ("user", "assistant")[at % 2], "content": text.format(n)} for at, text in enumerate(TURNS * (2 + n % 2))]}
    for n in range(ROWS)
]
"""Chats of two forms, none of them in a sample of one in 64 that its hash decides."""


@contextmanager
def fresh_caches() -> Iterator[None]:
    """Forms are learned again, before and after: caches know nothing of the bug."""
    for cache in CACHES.values():
        cache.clear()
    yield
    for cache in CACHES.values():
        cache.clear()


def chats(folder: Path, family: str = "sft", rows: Sequence[Mapping[str, Any]] = CHATS, schema: str = "messages") -> Workspace:
    return workspace_in(folder, minimal(family, {"few": domain(jsonl(folder / "few.jsonl", rows), schema)}))


def untrained_last(weights: Any) -> Any:
    """The last stretch that is trained, with its stop, is not."""
    weights = np.array(weights)
    last = np.flatnonzero(weights)[-1:].tolist()
    while last and weights[last[0]]:
        weights[last[0]] = 0
        last[0] -= 1
    return weights


def plant_in_renders(monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Any], None]) -> None:
    """Spoil the renders of many chats, for the build and for its proof."""

    def spoiled(*given: Any) -> Any:
        block = render_forms(*given)
        spoil(block)
        return block

    for module in (rendering, chat_blocks):
        monkeypatch.setattr(module, "render_forms", spoiled)


def planted_renders(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(block: Any) -> None:
        rows = np.searchsorted(block.starts, block.breaks, "right") - 1
        for row in np.unique(rows):
            block.weights[rows == row] = untrained_last(block.weights[rows == row])

    plant_in_renders(monkeypatch, spoil)


def planted_places(monkeypatch: pytest.MonkeyPatch) -> None:
    of: Any = vars(CompiledForm)["of"].__func__

    def spoiled(cls: Any, form: Any, words: Any, controls: Any, steps: Sequence[tuple[int, float]], *more: Any) -> Any:
        kept = untrained_last([weight for _, weight in steps])
        return of(cls, form, words, controls, [(at, float(weight)) for (at, _), weight in zip(steps, kept, strict=True)], *more)

    monkeypatch.setattr(CompiledForm, "of", classmethod(spoiled))


@pytest.mark.parametrize("plant", [planted_renders, planted_places])
def test_in_a_large_store_the_first_of_each_form_shows_it(
    plant: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prep_assets.checks.relations.SMALL", 0)
    monkeypatch.setattr("prep_assets.proofs.chat_blocks.ONE_IN", 1 << 40)
    with fresh_caches():
        plant(monkeypatch)
        with pytest.raises(CheckFailed, match=f"2 of {ROWS} rows train the wrong tokens"):
            build(chats(tmp_path), "sft_tokens", "few")


def trained_users(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = MaskPolicy.weight
    monkeypatch.setattr(MaskPolicy, "weight", lambda self, role, region: weight(self, ASSISTANT if role == USER else role, region))


def untrained_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MaskPolicy, "stop_weights", lambda *_: {})


def late_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every trained stretch begins one character late."""
    merge = spans._merge_steps
    monkeypatch.setattr(spans, "_merge_steps", lambda steps: [(at + bool(weight), weight) for at, weight in merge(steps)])


@pytest.mark.parametrize("plant", [trained_users, untrained_stops, late_answers])
def test_derivations_that_differ_stop_a_build(
    plant: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are a fault of ours: no row is rejected for it."""
    with fresh_caches():
        build(workspace := chats(tmp_path, rows=CHATS[:20]), "sft_raw", "few")
        plant(monkeypatch)
        with pytest.raises(PrepAssetsError, match=r"loss mask differ in 20 of 20 records.*by its marks and .* by its frames"):
            build(workspace, "sft_tokens", "few")


TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}} for name in ("add", "sort")]
CALLED = [
    {"role": "user", "content": "Two and one?"},
    {"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"b": 1, "a": 2}}}]},
    {"role": "tool", "content": "3"},
    {"role": "assistant", "content": "Three."},
]


def sorted_arguments(given: dict[str, Any]) -> dict[str, Any]:
    def said(message: Any) -> Any:
        calls = [
            {"function": {**call["function"], "arguments": dict(sorted(call["function"]["arguments"].items()))}}
            for call in message["tool_calls"]
        ]
        return {**message, "tool_calls": calls}

    return {**given, "messages": [said(message) if message.get("tool_calls") else message for message in given["messages"]]}


def test_another_render_than_the_template_gives_stops_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row in 17 shows it, so that the others would be published."""
    rows = [*CHATS[:16], {"messages": CALLED, "tools": TOOLS}]
    workspace = workspace_in(tmp_path, minimal("sft", {"few": domain(jsonl(tmp_path / "few.jsonl", rows), "messages")}, template="qwen3"))
    variables = ChatTemplate.render_variables
    with fresh_caches():
        build(workspace, "sft_raw", "few")
        monkeypatch.setattr(ChatTemplate, "render_variables", lambda self, *given: sorted_arguments(variables(self, *given)))
        with pytest.raises(PrepAssetsError, match=r"loss mask differ in 1 of 17 records.*two renders of it differ"):
            build(workspace, "sft_tokens", "few")


@pytest.mark.parametrize("tested", ["enable_thinking", "enable_thinking is defined", "enable_thinking is false"])
def test_an_option_of_rows_that_no_render_is_given_stops_a_build(tested: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows without it are right, those with it would be rejected as if it had no effect."""
    (tmp_path / "configs").mkdir()
    source = "{{ 'Think.' if TESTED }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    (tmp_path / "configs" / "own.jinja").write_text(source.replace("TESTED", tested), "utf-8")
    given = {"chat_template_kwargs": {"enable_thinking": "false" not in tested}}
    rows = [{**row, **(given if number % 2 else {})} for number, row in enumerate(CHATS[:12])]
    workspace = workspace_in(
        tmp_path, minimal("sft", {"few": domain(jsonl(tmp_path / "few.jsonl", rows), "messages")}, template="own.jinja")
    )
    variables = ChatTemplate.render_variables

    def without(self: ChatTemplate, *given: Any) -> dict[str, Any]:
        return {name: value for name, value in variables(self, *given).items() if name != "enable_thinking"}

    with fresh_caches():
        build(workspace, "sft_raw", "few")
        monkeypatch.setattr(ChatTemplate, "render_variables", without)
        with pytest.raises(PrepAssetsError, match="transformers writes it otherwise without its options"):
            build(workspace, "sft_tokens", "few")


@pytest.mark.parametrize(("read", "count", "stops"), [(20, 1, True), (999, 1, True), (1000, 1, False), (1000, 2, True), (20, 0, False)])
def test_how_many_may_differ(read: int, count: int, stops: bool, tmp_path: Path) -> None:
    path = tmp_path / "refused.jsonl"
    with Quarantine(path) as quarantine:
        quarantine.add("a:1", "render", "too_long", "so long", {})
        for row in range(count):
            quarantine.add(f"a:{row + 1}", "render", DERIVATIONS_DIFFER, f"detail {row}", {})
        counts = quarantine.counts
    message = disagreement(read, counts, path)
    assert bool(message) == stops and (f"differ in {count} of {read:,} records" in message and "a:1: detail 0" in message) == stops
    assert ("Please report it" in message) == stops
    own = disagreement(read, counts, path, "encoder:formats:chat")
    assert bool(own) == stops == ("The likeliest cause is the code of encoder:formats:chat" in own) and "report" not in own
    assert disagreement(read, counts, path, "encoder:gpt-oss") == message


def test_a_wrong_fast_engine_stops_a_small_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ids of one late document stand for the same text; no sample would take that document."""
    monkeypatch.setattr("prep_assets.checks.of_documents.FIRST", 0)
    monkeypatch.setattr(ids_again, "ONE_OF", 1 << 62)
    workspace = chats(tmp_path, "pretrain", [{"text": f"Document {n} is about the same."} for n in range(ROWS)], "text")
    engines = workspace.engines(workspace.family(Pretrain))
    table = workspace.vocabulary(workspace.family(Pretrain)).token_bytes
    assert engines.first is not engines.reference and table is not None
    single, encode = {own: number for number, own in enumerate(table) if len(own) == 1}, type(engines.first).encode

    def spoiled(self: Any, texts: Sequence[str]) -> Flat:
        flat = encode(self, texts)
        parts = [flat.ids[low:high].tolist() for low, high in pairwise(flat.offsets.tolist())]
        for at, text in enumerate(texts):
            if text.startswith("Document 57"):
                parts[at] = [single[bytes([byte])] for byte in text.encode()]
        return Flat(np.array([token for part in parts for token in part], np.uint32), np.cumsum([0, *map(len, parts)]))

    monkeypatch.setattr(type(engines.first), "encode", spoiled)
    with pytest.raises(CheckFailed, match="ids differ from the tokenizer's"):
        build(workspace, "pretrain_tokens", "few")


def test_a_field_of_one_row_that_the_manifest_does_not_name() -> None:
    def fields(*, every: bool) -> Fields:
        return Fields("few", {}, (), lambda row: row.keys() - {"text"}, every=every)

    rows = [{"text": "a", **({"label": 1} if number == 37 else {})} for number in range(1, ROWS + 1)]
    for every in (False, True):
        found = fields(every=every)
        found.add(range(1, ROWS + 1), rows, range(ROWS))
        assert found.unnamed == ({"label"} if every else set())
    first = fields(every=False)
    first.add([37], rows[36:37], [0])
    assert first.unnamed == {"label"}, "the first row of a part"


def test_a_schema_that_spoils_one_row_stops_a_small_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second reading of a plain pair knows better, and every line is compared with both."""
    rows = [{"prompt": f"What is {n}?", "chosen": f"The number {n}.", "rejected": f"Not {n}."} for n in range(ROWS)]
    workspace = chats(tmp_path, "preference", rows, "preference")
    convert = SchemaReader.rows

    def spoiled(self: SchemaReader, payloads: Sequence[Any], **more: Any) -> list[Any]:
        swapped = [{**row, "chosen": row["rejected"], "rejected": row["chosen"]} if "37" in row["prompt"] else row for row in payloads]
        return convert(self, swapped, **more)

    monkeypatch.setattr(SchemaReader, "rows", spoiled)
    with pytest.raises(CheckFailed, match="lines differ from their rows"):
        build(workspace, "preferences_by_domain", "few")


def test_one_wrong_row_of_a_small_export_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 5 * ROWS
    spoilt = next(row for row in range(1, count) if row not in random.Random(0).sample(range(count), SAMPLE))
    rows = [{"text": f"Document {n} is about the same."} for n in range(count)]
    options = {"exports": {"few": {"from": "pretrain_tokens", "to": "megatron"}}}
    workspace = workspace_in(tmp_path, minimal("pretrain", {"few": domain(jsonl(tmp_path / "few.jsonl", rows), "text")}, **options))
    append = IndexedWriter.append

    def spoiled(self: IndexedWriter, values: Any, lengths: Any, *more: Any) -> None:
        values = np.array(values)
        values[int(np.sum(lengths[:spoilt]))] += 1
        append(self, values, lengths, *more)

    build(workspace, "pretrain_tokens", "few")
    monkeypatch.setattr(IndexedWriter, "append", spoiled)
    asset = asset_named("pretrain_export_few", workspace)
    with pytest.raises(CheckFailed, match=f"row {spoilt}"):
        make(workspace, asset, "few")


def test_a_wrong_certificate_stops_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certify, "_is_prefix_stable", lambda template: False)
    with fresh_caches(), pytest.raises(CheckFailed, match="prefix_stable is False in the certificate, renders show True"):
        build(chats(tmp_path), "sft_template")


def test_a_certificate_that_is_not_written_whole_stops_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prep_assets.graph.sft.write_json", lambda path, value, **more: write_json(path, {**value, "findings": []}, **more))
    with pytest.raises(CheckFailed, match=r"the findings are \[\]"):
        build(chats(tmp_path), "sft_template")


# Right rows that are rejected: the same code says so twice, and the second derivation does not.


def ordinary_as_control(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_in_renders(monkeypatch, lambda block: block.items.__setitem__(block.items < 0, 0))


def moved_borders(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_in_renders(monkeypatch, lambda block: block.breaks.__setitem__(slice(1, None), block.breaks[1:] + 2))


def stripped_control(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "treat", lambda sample, pattern, _: treat(sample, pattern, "strip"))


def unproven(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoiled(rendered: Any, *_: Any) -> None:
        if "<|im_start|>assistant\n<|im_end|><|im_end|>" in rendered.text:
            raise Refused("mask_not_provable", "so it is", stage="render")

    monkeypatch.setattr(conversations, "check_mask", spoiled)


@pytest.mark.parametrize(
    ("plant", "reason"),
    [
        (None, ""),
        (ordinary_as_control, "lossy_tokenizer"),
        (moved_borders, "mask_border_inside_token"),
        (stripped_control, "nothing_to_train"),
        (unproven, "mask_not_provable"),
    ],
)
def test_right_rows_that_are_rejected_stop_a_build(
    plant: Callable[[pytest.MonkeyPatch], None] | None, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = {"messages": [{"role": "user", "content": "End?"}, {"role": "assistant", "content": "<|im_end|>"}]}
    workspace = chats(tmp_path, rows=[*CHATS[:19], typed])
    with fresh_caches():
        build(workspace, "sft_raw", "few")
        if plant is None:
            assert build(workspace, "sft_tokens", "few").manifest.counts["refused"] == {}
            return
        plant(monkeypatch)
        with pytest.raises(CheckFailed, match=rf"selection: .*{reason}"):
            build(workspace, "sft_tokens", "few")
