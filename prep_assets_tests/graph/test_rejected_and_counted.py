"""Bugs planted in code that rejects, keeps and counts: built with the checks of its store, which must see each of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prep_assets.data import blocks as data_blocks
from prep_assets.errors import PrepAssetsError
from prep_assets.graph import pretrain
from prep_assets.graph.graph import EVERY
from prep_assets.pipeline import examples
from prep_assets.pipeline.rendering import BlockRenderer
from prep_assets.pipeline.workspace import Workspace
from prep_assets.samples import Sample
from prep_assets.stores.manifest import Manifest
from prep_assets.stores.version_folders import Published
from prep_assets.text import encode, render
from prep_assets_tests.graph.workspaces import TOKENIZER, build, failing, jsonl, minimal, refusals, resealed, verdicts, workspace_in

WORDS = "one two three four five six seven eight nine ten"


def chat(question: str, answer: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}], "n": 0, **more}


CHATS = [chat(f"Question {number}?", f"Answer {number}: {WORDS}.", n=number) for number in range(19)]
CHATS += [
    chat("Medium?", " ".join([WORDS] * 4), n=7),
    CHATS[3],
    CHATS[3],
    chat("Long?", " ".join([WORDS] * 20), n=5),
    chat("Other?", "Left out.", n=99),
    {"messages": "none", "n": 4},
]
CHATS += [chat("One too many?", "Yes.", n=6)]
TEXTS = [{"text": f"document {number}: {WORDS}"} for number in range(20)]
TEXTS += [TEXTS[4], {"text": "short"}, {"text": " ".join([WORDS] * 9)}, {"text": f"\u00e9{WORDS}" * 2}, {"text": "exactly ten"[:10]}]


def of_chats(folder: Path) -> tuple[Workspace, str]:
    domain = {"files": [str(jsonl(folder / "rows.jsonl", CHATS))], "schema": "messages", "where": {"n": {"<": 50}}, "max_items": 24}
    options = {
        "tokenizer": TOKENIZER,
        "template": "chatml",
        "preprocessing": {"max_seq_len": 96},
        "domains": {"d": {**domain, "ignore": ["n"]}},
    }
    return workspace_in(folder, {"sft": options}), "sft_tokens"


def of_texts(folder: Path) -> tuple[Workspace, str]:
    domain = {"files": [str(jsonl(folder / "rows.jsonl", TEXTS))], "schema": "text"}
    sizes = {"min_chars": 10, "max_chars": 300, "max_seq_len": 60}
    return workspace_in(folder, {"pretrain": {"tokenizer": TOKENIZER, "preprocessing": sizes, "domains": {"d": domain}}}), "pretrain_tokens"


WORKSPACES: Mapping[str, Callable[[Path], tuple[Workspace, str]]] = {"chats": of_chats, "texts": of_texts}


def stored(workspace: Workspace, asset: str) -> Published:
    """A store whose checks have not been asked, as the code writes it."""
    build(workspace, asset.replace("tokens", "raw"), "d")
    return EVERY[asset].build(workspace, "d").propose()


@pytest.mark.parametrize(
    ("kind", "reasons"),
    [
        ("chats", {"deduplicate/duplicate": 2, "records/filtered_by_where": 1, "schema/wrong_type": 1, "tokenize/too_long": 1}),
        ("texts", {"deduplicate/duplicate": 1, "pretrain/too_many_chars": 1, "pretrain/too_short": 1, "tokenize/too_long": 0}),
    ],
)
def test_the_right_code(tmp_path: Path, kind: str, reasons: dict[str, int]) -> None:
    workspace, asset = WORKSPACES[kind](tmp_path)
    published = stored(workspace, asset)
    assert published.manifest.counts["refused"] == {reason: count for reason, count in reasons.items() if count}


class KeepsDuplicates(examples.Deduplicator):
    def among(self, file: Any, records: Any) -> dict[int, Any]:
        return {}


class LosesAll(examples.Deduplicator):
    """The second of two equal records is kept, not the first."""

    def among(self, file: Any, records: Any) -> dict[int, Any]:
        found = super().among(file, records)
        return {row - 17 if row == 20 else row: refused for row, refused in found.items()}


class Invents(examples.Deduplicator):
    def among(self, file: Any, records: Any) -> dict[int, Any]:
        return super().among(file, records) | {2: examples.Refused("duplicate", "equals rows.jsonl:2", stage="deduplicate")}


def limit_of(step: int) -> Callable[..., Any]:
    real = examples._rows_to_limit
    return lambda rows, limit: real(rows, limit + step if limit == 24 else limit)


def sizes_of(fewest: int, most: int | None) -> Callable[..., Any]:
    real = pretrain.Sizes
    return lambda min_chars, max_chars: real(min_chars + fewest, None if most is None else max_chars + most)


def longer(step: int) -> Callable[..., Any]:
    real = pretrain.too_long
    return lambda offsets, limit: real(offsets, limit + step)


@pytest.mark.parametrize(
    ("kind", "place", "name", "bug"),
    [
        ("chats", examples, "Deduplicator", KeepsDuplicates),
        ("chats", examples, "Deduplicator", LosesAll),
        ("chats", examples, "Deduplicator", Invents),
        ("texts", examples, "Deduplicator", KeepsDuplicates),
        ("texts", examples, "Deduplicator", Invents),
        ("chats", examples, "_rows_to_limit", limit_of(-1)),
        ("chats", examples, "_rows_to_limit", limit_of(1)),
        ("chats", examples, "filter_blocks", lambda blocks, tests: blocks),
        ("chats", data_blocks, "_ORDER", {**data_blocks._ORDER, "<": lambda value, bound: value < bound - 40}),
        ("texts", pretrain, "Sizes", sizes_of(1, 0)),
        ("texts", pretrain, "Sizes", sizes_of(-5, 0)),
        ("texts", pretrain, "Sizes", sizes_of(0, -250)),
        ("texts", pretrain, "Sizes", sizes_of(0, None)),
        ("texts", pretrain, "too_long", longer(-52)),
    ],
)
def test_a_bug_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, place: Any, name: str, bug: Any) -> None:
    workspace, asset = WORKSPACES[kind](tmp_path)
    monkeypatch.setattr(place, name, bug)
    published = stored(workspace, asset)
    assert {"selection", "tokenization_identity", "accounting"} & {*failing(workspace, published)}


@pytest.mark.parametrize("limit", [40, 1000])
def test_a_limit_that_is_another_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: int) -> None:
    """The build cuts at another length, and so does what repeats it: a render and the reference tokenizer say how long a chat is."""
    workspace, asset = of_chats(tmp_path)
    real = encode.Encoder._cut_to_length
    monkeypatch.setattr(encode.Encoder, "_cut_to_length", lambda self, *given: real(replace(self, max_seq_len=limit), *given))
    published = stored(workspace, asset)
    assert {"selection", "row_integrity"} & {*failing(workspace, published)}


NO_SYSTEM = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + (
    "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
PARTS = {
    "preference_tokens_by_domain": ("preference", "preference", {"chosen": "Yes.", "rejected": "No."}),
    "rl_tokens_by_domain": ("rl", "rl_prompt", {"gold": 1}),
    "rl_groups_by_domain": ("rl", "group", {"responses": ["Yes.", "No."], "rewards": [1.0, 0.0]}),
}


def of_parts(folder: Path, asset: str) -> Workspace:
    """Pairs, prompts or groups; the template refuses the system prompts of two of them."""
    family, schema, more = PARTS[asset]
    user = [{"role": "user", "content": f"Question {number}?"} for number in range(12)]
    rows = [{"prompt": [each], **more} for each in user]
    rows += [{"prompt": [{"role": "system", "content": "Be kind."}, each], **more} for each in user[:2]]
    options: dict[str, Any] = {"schema": schema} | ({"options": {"gold_key": "gold"}} if schema == "rl_prompt" else {})
    domains = {"d": {"files": [str(jsonl(folder / "rows.jsonl", rows))], **options}}
    workspace = workspace_in(folder, minimal(family, domains, template="own.jinja"))
    (workspace.configs / "own.jinja").write_text(NO_SYSTEM, "utf-8")
    return workspace


@pytest.mark.parametrize("asset", PARTS)
def test_what_a_template_refuses_of_pairs_prompts_and_groups(tmp_path: Path, asset: str) -> None:
    published = build(of_parts(tmp_path, asset), asset, "d")
    assert published.manifest.counts["refused"] == {"render/template_refuses": 2}
    verdict = verdicts(of_parts(tmp_path, asset), published)["selection"]
    assert verdict.passed and (verdict.numbers["rows_refused"], verdict.numbers["rejections_repeated"]) == (2, 0)


@pytest.mark.parametrize("asset", PARTS)
def test_a_right_pair_prompt_or_group_that_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asset: str) -> None:
    real = render._with_template

    def refuses(sample: Sample, *given: Any) -> Any:
        if any(region.text == "Question 3?" for turn in sample.turns for region in turn.regions):
            raise examples.Refused("template_refuses", "", stage="render")
        return real(sample, *given)

    monkeypatch.setattr(render, "_with_template", refuses)
    monkeypatch.setattr(BlockRenderer, "render_block", lambda *_, **__: None)
    monkeypatch.setattr(BlockRenderer, "by_form", lambda *_: None)
    with pytest.raises(PrepAssetsError, match=r"selection: .*transformers renders it"):
        build(of_parts(tmp_path, asset), asset, "d")


def spoiled(published: Published, change: Callable[[Manifest], Manifest]) -> Published:
    change(published.manifest).write(published.directory)
    return resealed(Published(published.directory, Manifest.read(published.directory)))


@pytest.mark.parametrize("kind", ["chats", "texts"])
@pytest.mark.parametrize("field", ["counts", "metrics"])
def test_every_number_of_a_manifest(tmp_path: Path, kind: str, field: str) -> None:
    """One more of each count and metric, and one that no build writes."""
    workspace, asset = WORKSPACES[kind](tmp_path)
    published = stored(workspace, asset)
    clean, uncounted = published.manifest, []
    for key, number in {**getattr(clean, field), "invented": 0}.items():
        if isinstance(number, int | float):
            changed = spoiled(
                published, lambda manifest, key=key, number=number: replace(clean, **{field: {**getattr(clean, field), key: number + 1}})
            )
            uncounted += [] if "accounting" in failing(workspace, changed) else [key]
            published = changed
    assert uncounted == (["control_tokens_in_content"] if (kind, field) == ("chats", "counts") else [])


@pytest.mark.parametrize("says", [(), ("everything is right",)])
def test_what_a_manifest_says_of_its_checks(tmp_path: Path, says: tuple[str, ...]) -> None:
    workspace, asset = of_chats(tmp_path)
    published = stored(workspace, asset)
    assert not failing(workspace, published) and published.manifest.checks
    assert failing(workspace, spoiled(published, lambda manifest: replace(manifest, checks=says))) == ["file_hashes"]


@pytest.mark.parametrize("key", ["payload", "detail"])
def test_a_forged_quarantine(tmp_path: Path, key: str) -> None:
    """The text of each rejected record, whatever rejected it, or what is wrong with it, is replaced by another one of the same length."""
    workspace, asset = of_chats(tmp_path)
    published = stored(workspace, asset)
    assert published.quarantine is not None
    lines = [json.loads(line) for line in published.quarantine.read_text("utf-8").splitlines()]
    assert len(lines) == len(refusals(published)) == 5
    for number, line in enumerate(lines):
        forged = {**line, key: f"{line[key][:-1]}~"}
        text = "".join(json.dumps(each) + "\n" for each in [*lines[:number], forged, *lines[number + 1 :]])
        published.quarantine.write_text(text, "utf-8")
        published = resealed(published)
        # what the sources alone decide is not judged by the build again, which knows the detail
        expected = ["selection"] if key == "payload" or line["stage"] not in ("records", "deduplicate") else []
        assert published.quarantine is not None and failing(workspace, published) == expected, line["reason"]
