"""RL: prompts with a verifiable answer → ``rl_prompts_train.jsonl`` and ``_test``; the arithmetic curriculum; tokenized prompts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import xxhash

from prep_assets.assets.build import Build
from prep_assets.assets.commands import materialize_command
from prep_assets.assets.reading.all_refused import check_domain
from prep_assets.assets.reading.domain import passed_over
from prep_assets.assets.reading.examples import check_schemas, held_out, reading_recipe
from prep_assets.assets.reading.reasoning import inline_reasoning, reasoning_recipe, unrendered_reasoning
from prep_assets.assets.reading.rl_domains import prompt_domains
from prep_assets.assets.reading.source import Source
from prep_assets.assets.versions import RL as VERSION
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.images import refuse_images
from prep_assets.assets.writing.message_rows import (
    RowForm,
    extra_columns,
    in_one_form,
    row_in_form,
    sample_of,
    says_something,
    turns_of,
    written,
)
from prep_assets.assets.writing.tokens import audit_stream, ids_dtype, tokenizer_recipe
from prep_assets.config.models import Rl
from prep_assets.errors import Refused, StoreError
from prep_assets.records.quarantine import Quarantine
from prep_assets.samples import USER, Prompt, Turn
from prep_assets.schemas.arithmetic import arithmetic_rows
from prep_assets.schemas.gold import gold_as_json_number
from prep_assets.stores.lines import LinesWriter, open_lines
from prep_assets.stores.published import Draft, open_published
from prep_assets.stores.tokens import record_writer
from prep_assets.templates.chat_template import ChatTemplate
from prep_assets.templates.reasoning import InlineReasoning
from prep_assets.templates.rendering import Rendered, render
from prep_assets.tokenization.encode import Encoder
from prep_assets.tokenization.policy import MaskPolicy

RAW = "rl_raw"
PROMPTS = "rl_prompts"
ARITHMETIC = "arithmetic_prompts"
TRAIN, TEST = "rl_prompts_train", "rl_prompts_test"
BATCH = 2048


def prompts_recipe(workspace: Workspace, _: str = "") -> dict[str, Any]:
    """What the prompt files depend on. Domains are sorted, so their order in the configuration does not matter."""
    family = workspace.family(Rl)
    domains = {}
    for name in prompt_domains(family):
        domain, raw = family.domains[name], workspace.published(RAW, name)
        domains[name] = {"raw": raw.manifest.content_hash if raw else None, "schema": reading_recipe(domain)}
    return {
        "stage": PROMPTS,
        "version": VERSION,
        "domains": domains,
        "test_fraction": family.test_fraction,
        "form": family.form,
        **reasoning_recipe(family),
        "deduplicate": family.preprocessing.deduplicate,
    }


def prompts_build(workspace: Workspace, _: str = "") -> Build:
    """Write every domain's prompts with their gold answers, in the order of the sources."""
    family = workspace.family(Rl)
    names = prompt_domains(family)

    def write(payload: Path, quarantine_path: Path) -> Draft:
        check_schemas(family, names, Prompt)
        return in_one_form(family.form, payload, lambda form, auto: _write_prompts(workspace, payload, quarantine_path, form, auto))

    def audit(payload: Path) -> None:
        for name in (TRAIN, TEST):
            for number, row in enumerate(open_lines(payload, name)):
                if not says_something(row["prompt"]):
                    raise StoreError(f"{name}.jsonl line {number + 1}: an empty prompt")

    recipe = prompts_recipe(workspace)
    return Build(workspace.place(PROMPTS), recipe, prompts_recipe(workspace.plain), write, audit, needs_records=bool(names))


def _write_prompts(workspace: Workspace, payload: Path, quarantine_path: Path, form: RowForm, auto: bool) -> Draft:
    family = workspace.family(Rl)
    names, reasoning = prompt_domains(family), unrendered_reasoning(family)
    readings = [Source.of(workspace, Rl, RAW, name, gives=Prompt).reading() for name in names]
    with ExitStack() as stack:
        quarantine = stack.enter_context(Quarantine(quarantine_path))
        train, test = (stack.enter_context(LinesWriter(payload, name, names)) for name in (TRAIN, TEST))
        for number, reading in enumerate(readings):
            before = sum(quarantine.counts.values())
            for items, in_test in reading.examples("prompts", quarantine):
                for item in items:
                    try:
                        prompt = prompt_of(reasoning.read(item.example))
                        row = row_in_form(partial(prompt_row, prompt), form, auto)
                    except Refused as refusal:
                        item.refuse(quarantine, refusal)
                        continue
                    target = test if in_test or held_out(prompt_digest(prompt.prompt), family.test_fraction) else train
                    target.append(row, source=number, file=item.record.file, at=item.record.row)
            check_domain(reading.name, reading.read, quarantine, before)
        books = {"kept": len(train) + len(test), "train": len(train), "test": len(test), "refused": quarantine.counts}
    counts = {"read": sum(reading.read for reading in readings), **books, **passed_over(*readings)}
    return Draft(counts, {}, ("prompts are not empty",))


def prompt_of(example: object) -> Prompt:
    """A prompt without images; anything else is refused."""
    if not isinstance(example, Prompt):
        raise Refused("not_a_prompt", f"the schema gives {type(example).__name__}, RL needs a Prompt", stage="prompt")
    refuse_images(example.prompt, "prompt")
    return example


def prompt_row(example: Prompt, form: RowForm) -> dict[str, Any]:
    """``{prompt, gold}``: the gold of a number verifier as a JSON number, as train-llm-from-scratch writes it; of another one as text, with
    the verifier's name.

    Raises:
        Refused: an empty prompt, or one that the form cannot hold.
    """
    columns = extra_columns(example)
    prompt = written(example.prompt, form, columns, "prompt")
    if not says_something(prompt):
        raise Refused("empty_prompt", "the prompt is empty", stage="prompt")
    if example.verifier == "number":
        return {"prompt": prompt, "gold": gold_as_json_number(example.gold), **columns}
    return {"prompt": prompt, "gold": example.gold, "verifier": example.verifier, **columns}


def prompt_digest(turns: tuple[Turn, ...]) -> bytes:
    """What decides whether a prompt is held out, whatever the form of the file, and for prompts of groups as well."""
    plain = turns[0].text if len(turns) == 1 and turns[0].role == USER else [{"role": each.role, "content": each.text} for each in turns]
    return xxhash.xxh3_128_digest(msgspec.json.encode(plain))


# -- the arithmetic curriculum ----------------------------------------------------------------------------------------------------------


def arithmetic_recipe(workspace: Workspace, _: str = "") -> dict[str, Any]:
    """What the curriculum depends on."""
    return {"stage": ARITHMETIC, "version": VERSION, **workspace.family(Rl).arithmetic.model_dump()}


def arithmetic_build(workspace: Workspace, _: str = "") -> Build:
    """Generate the arithmetic curriculum."""
    options = workspace.family(Rl).arithmetic

    def write(payload: Path, quarantine: Path) -> Draft:
        levels: dict[str, int] = {}
        chosen = {} if options.levels is None else {"levels": options.levels}
        with LinesWriter(payload, ARITHMETIC, ("arithmetic",)) as lines:
            for at, row in enumerate(arithmetic_rows(options.n, options.largest, options.seed, unique=options.unique, **chosen)):
                level = str(row["level"])
                levels[level] = levels.get(level, 0) + 1
                shown = {"prompt": row["prompt"], "gold": gold_as_json_number(str(row["gold"]))}
                if options.levels is not None:
                    shown["level"] = level
                lines.append(shown, source=0, file=0, at=at)
            count = len(lines)
        return Draft({"read": count, "kept": count, "refused": {}, **{f"level_{name}": n for name, n in levels.items()}}, {}, ())

    return Build(workspace.place(ARITHMETIC), arithmetic_recipe(workspace), arithmetic_recipe(workspace.plain), write, lambda payload: None)


# -- tokens -----------------------------------------------------------------------------------------------------------------------------


def tokens_recipe(workspace: Workspace, _: str = "") -> dict[str, Any]:
    """What the tokenized prompts depend on."""
    family = workspace.family(Rl)
    inputs = {asset: workspace.published(asset) for asset in (PROMPTS, ARITHMETIC)}
    return {
        "stage": "rl_tokens",
        "version": VERSION,
        "prompts": {asset: store.manifest.content_hash if store else None for asset, store in inputs.items()},
        "tokenizer": tokenizer_recipe(workspace, family),
        "template": workspace.template(family).hash,
        **reasoning_recipe(family),
        "max_seq_len": family.preprocessing.max_seq_len,
        "output": family.output.model_dump(),
    }


def tokens_build(workspace: Workspace, _: str = "") -> Build:
    """Tokenize the training prompts, ended by the template's generation prompt: what a rollout starts from."""
    family = workspace.family(Rl)
    vocabulary = workspace.vocabulary(family)
    streams = {"prompts": (PROMPTS, TRAIN), "arithmetic": (ARITHMETIC, ARITHMETIC)}

    def write(payload: Path, quarantine_path: Path) -> Draft:
        dtype, counts = ids_dtype(family, vocabulary), {"read": 0, "kept": 0, "tokens": 0}
        with Quarantine(quarantine_path) as quarantine:
            for stream, (asset, name) in streams.items():
                shard = family.output.max_tokens_per_shard
                with record_writer(family.output.storage_format, payload, stream, {"tokens": dtype}, max_tokens_per_shard=shard) as writer:
                    for found in _encode_prompts(workspace, asset, name, quarantine):
                        ids, lengths, rows, read = found
                        writer.append({"tokens": ids}, lengths, [0] * len(rows), rows)
                        counts["read"] += read
                        counts["kept"] += len(rows)
                        counts["tokens"] += len(ids)
            refused = quarantine.counts
        return Draft({**counts, "refused": refused}, {}, ("ids inside the vocabulary",))

    def audit(payload: Path) -> None:
        for stream in streams:
            audit_stream(payload, stream, vocabulary)

    return Build(workspace.place("rl_tokens"), tokens_recipe(workspace), tokens_recipe(workspace.plain), write, audit)


def _encode_prompts(workspace: Workspace, asset: str, name: str, quarantine: Quarantine) -> Iterator[tuple[Any, Any, list[int], int]]:
    family = workspace.family(Rl)
    template, reasoning, encoder = workspace.template(family), inline_reasoning(workspace, family), prompt_encoder(workspace)
    rows = enumerate(open_lines(open_published(workspace.stores, asset, remedy=materialize_command(asset)).directory, name))
    while batch := list(islice(rows, BATCH)):
        rendered, at = [], []
        for row, content in batch:
            try:
                rendered.append(generation_prompt(template, reasoning, content))
                at.append((row, content))
            except Refused as refusal:
                quarantine.add(f"{name}.jsonl:{row}", refusal.stage, refusal.reason, refusal.detail, content)
        encoded = encoder.encode(rendered)
        for position, why in encoded.refused:
            row, content = at[position]
            quarantine.add(f"{name}.jsonl:{row}", why.stage, why.reason, why.detail, content)
        yield encoded.ids, np.diff(encoded.offsets), [at[int(i)][0] for i in encoded.kept], len(batch)


def prompt_encoder(workspace: Workspace) -> Encoder:
    """What tokenizes prompts: nothing of them is trained."""
    family, nothing = workspace.family(Rl), MaskPolicy({}, "mask", "none")
    return Encoder(workspace.vocabulary(family), workspace.engines(family), nothing, family.preprocessing.max_seq_len, trains=False)


def generation_prompt(template: ChatTemplate, reasoning: InlineReasoning, content: dict[str, Any]) -> Rendered:
    """A line of a prompt file, rendered up to where a model continues."""
    sample = sample_of(content, turns_of(content["prompt"], USER))
    return render(reasoning.read(sample), template, generation_prompt=True)
