"""RL prompts, of one domain and of all as one: questions with a verifiable answer → ``rl_prompts_train.jsonl`` and ``rl_prompts_test.jsonl``."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from prep_assets.assets.checks import alone
from prep_assets.assets.checks.accounting import ACCOUNTING
from prep_assets.assets.checks.every_store import INTEGRITY
from prep_assets.assets.checks.merged import MERGED_LINES
from prep_assets.assets.checks.prompts import Golds
from prep_assets.assets.checks.sides import by_prompt
from prep_assets.assets.checks.source_match import PromptsMatch
from prep_assets.assets.checks.verification import SELECTION, derived
from prep_assets.assets.columns import PROMPTS as COLUMNS
from prep_assets.assets.configured import prompt_domains
from prep_assets.assets.options import REASONING
from prep_assets.assets.previews import line_preview
from prep_assets.assets.reading.domain import passed_over
from prep_assets.assets.reading.examples import domain_recipe, held_out
from prep_assets.assets.reading.reasoning import reasoning_recipe, unrendered_reasoning
from prep_assets.assets.reading.source import Source
from prep_assets.assets.stage import Asset, FromParts, FromRows, Stream
from prep_assets.assets.versions import RL as VERSION
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.merging import merge_lines, parts_of
from prep_assets.assets.writing.message_rows import UNTEMPLATED, RowForm, in_one_form, is_untemplated, row_in_form, says_something
from prep_assets.assets.writing.prompts import prompt_digest, prompt_of, prompt_row
from prep_assets.config.models import Rl
from prep_assets.errors import Refused, StoreError
from prep_assets.records.quarantine import Quarantine
from prep_assets.samples import Prompt
from prep_assets.stores.lines import Lines, LinesWriter, open_lines
from prep_assets.stores.published import Draft

RAW = "rl_raw"
TRAIN, TEST = "rl_prompts_train", "rl_prompts_test"


def _depends(workspace: Workspace, name: str) -> dict[str, Any]:
    """What the prompt files of a domain depend on."""
    family = workspace.family(Rl)
    return {
        **domain_recipe(workspace, family, RAW, name),
        "test_fraction": family.test_fraction,
        "form": family.form,
        **reasoning_recipe(family),
        "deduplicate": family.preprocessing.deduplicate,
    }


def _write(workspace: Workspace, name: str, payload: Path, quarantine_path: Path) -> Draft:
    """Write a domain's prompts with their gold answers, in the order of the sources."""
    form = workspace.family(Rl).form
    return in_one_form(form, payload, lambda form, auto: _write_prompts(workspace, name, payload, quarantine_path, form, auto))


def _audit(workspace: Workspace, _: str, payload: Path) -> None:
    for name in (TRAIN, TEST):
        for number, row in enumerate(open_lines(payload, name)):
            if not says_something(row["prompt"]):
                raise StoreError(f"{name}.jsonl line {number + 1}: an empty prompt")


def _write_prompts(workspace: Workspace, name: str, payload: Path, quarantine_path: Path, form: RowForm, auto: bool) -> Draft:
    family = workspace.family(Rl)
    reasoning, reading = unrendered_reasoning(family), Source.of(workspace, Rl, RAW, name, gives=Prompt).reading()
    untemplated = 0
    with ExitStack() as stack:
        quarantine = stack.enter_context(Quarantine(quarantine_path))
        train, test = (stack.enter_context(LinesWriter(payload, file, (name,))) for file in (TRAIN, TEST))
        for items, in_test in reading.examples("prompts", quarantine):
            for item in items:
                try:
                    prompt = prompt_of(reasoning.read(item.example))
                    row = row_in_form(partial(prompt_row, prompt), form, auto)
                except Refused as refusal:
                    item.refuse(quarantine, refusal)
                    continue
                untemplated += is_untemplated(prompt)
                target = test if in_test or held_out(prompt_digest(prompt.prompt), family.test_fraction) else train
                target.append(row, source=0, file=item.record.file, at=item.record.row)
        books = {"kept": len(train) + len(test), "train": len(train), "test": len(test), "refused": quarantine.counts}
    counts = {"read": reading.read, **books, **({UNTEMPLATED: untemplated} if untemplated else {}), **passed_over(reading)}
    return Draft(counts, {}, ("prompts are not empty",))


BY_DOMAIN = Asset(
    name="rl_prompts_by_domain",
    family="rl",
    description="Prompts of a domain with their gold answers: `rl_prompts_train.jsonl` and `rl_prompts_test.jsonl`.",
    version=VERSION,
    depends=_depends,
    write=_write,
    audit=_audit,
    partitioned=True,
    upstream=(RAW,),
    options=(*REASONING, "test_fraction", "form", "preprocessing.deduplicate"),
    checks=(
        INTEGRITY,
        ACCOUNTING,
        derived("gold_answers", "Every gold equals a second reading of its source by other code."),
        derived("source_match", "Every prompt is what its row says, with the gold of that row."),
        SELECTION,
    ),
    derivations=(PromptsMatch, Golds),
    preview=line_preview,
    streams={name: Stream(Lines, name) for name in (TRAIN, TEST)},
    source=FromRows(Prompt, alone.prompts, by_prompt(Prompt), plain=True),
    domains=prompt_domains,
    kind="json",
    columns=COLUMNS,
)


PARTS = "rl_prompts_by_domain"


def _depends_on_parts(workspace: Workspace, _: str) -> dict[str, Any]:
    """What the prompt files depend on. Domains are sorted, so their order in the configuration does not matter."""
    return {"domains": {name: workspace.content(PARTS, name) for name in prompt_domains(workspace.family(Rl))}}


def _merge(workspace: Workspace, _: str, payload: Path, quarantine: Path) -> Draft:
    """Write the files of all domains as one each, in the order of the domains."""
    parts = parts_of(workspace, PARTS, prompt_domains(workspace.family(Rl)))
    lines = {TRAIN: 0, TEST: 0} | merge_lines(parts, payload, {TRAIN: None, TEST: None})
    read = sum(part.manifest.counts["kept"] for part in parts.values())
    return Draft({"read": read, "kept": sum(lines.values()), "train": lines[TRAIN], "test": lines[TEST], "refused": {}}, {}, ())


MERGED = Asset(
    name="rl_prompts",
    family="rl",
    description="Prompts with their gold answers: `rl_prompts_train.jsonl` and `rl_prompts_test.jsonl`.",
    version=VERSION,
    depends=_depends_on_parts,
    write=_merge,
    upstream=(PARTS,),
    checks=(INTEGRITY, ACCOUNTING, MERGED_LINES),
    preview=line_preview,
    streams={name: Stream(Lines, name) for name in (TRAIN, TEST)},
    source=FromParts((PARTS,)),
    domains=prompt_domains,
    may_be_empty=lambda workspace, _: not prompt_domains(workspace.family(Rl)),
    kind="json",
    columns=COLUMNS,
)
