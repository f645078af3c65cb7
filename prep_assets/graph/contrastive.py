"""Contrastive rows: queries with positive and negative texts → ``contrastive.jsonl``, and a held-out test file, one store per domain."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from prep_assets.checks import of_stores
from prep_assets.checks.of_lines import ContrastsMatch
from prep_assets.checks.of_stores import ACCOUNTING, INTEGRITY, SELECTION, derived
from prep_assets.checks.sources_again import by_fields
from prep_assets.config.models import Contrastive
from prep_assets.data.quarantine import Quarantine
from prep_assets.errors import Refused, StoreError
from prep_assets.graph.previews import line_preview
from prep_assets.pipeline.asset import (
    CONTRAST_COLUMNS,
    CONTRASTIVE_VERSION,
    PUBLISHED,
    Asset,
    Check,
    FromRows,
    Store,
    Stream,
)
from prep_assets.pipeline.examples import Source, held_out, passed_over, reading_recipe
from prep_assets.pipeline.lines import JudgedContrasts, query_digest
from prep_assets.pipeline.sources import domain_of
from prep_assets.pipeline.tokens import tokenizer_recipe
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.rows import check_contrasts
from prep_assets.proofs.verdict import Verdict
from prep_assets.samples import Contrast
from prep_assets.stores.lines import Lines, LinesWriter, open_lines
from prep_assets.stores.published import Draft

RAW = "contrastive_raw"
TRAIN, TEST = "contrastive", "contrastive_test"


def _depends(workspace: Workspace, name: str) -> dict[str, Any]:
    """What a domain's rows depend on; the tokenizer only where texts are measured with it."""
    family = workspace.family(Contrastive)
    limit = family.preprocessing.max_seq_len
    return {
        "domain": name,
        "raw": workspace.content(RAW, name),
        "schema": reading_recipe(domain_of(family, name)),
        "test_fraction": family.test_fraction,
        "preprocessing": family.preprocessing.model_dump(),
        "tokenizer": None if limit is None else tokenizer_recipe(workspace, family),
    }


def _write(workspace: Workspace, name: str, payload: Path, quarantine_path: Path) -> Draft:
    """Convert one domain, in the order of its sources."""
    family = workspace.family(Contrastive)
    reading = Source.of(workspace, Contrastive, RAW, name, gives=Contrast).reading()
    judged, texts = JudgedContrasts(workspace), {"positives": 0, "negatives": 0}
    with ExitStack() as stack:
        quarantine = stack.enter_context(Quarantine(quarantine_path))
        train, test = (stack.enter_context(LinesWriter(payload, each, (name,))) for each in (TRAIN, TEST))
        for items, in_test in reading.examples("contrast", quarantine):
            for item in items:
                try:
                    row = judged.row(item.example)
                except Refused as refusal:
                    item.refuse(quarantine, refusal)
                    continue
                target = test if in_test or held_out(query_digest(row["query"]), family.test_fraction) else train
                target.append(row, source=0, file=item.record.file, at=item.record.row)
                for side in texts:
                    texts[side] += len(row.get(side, ()))
        books = {"kept": len(train) + len(test), "train": len(train), "test": len(test), **texts, "refused": quarantine.counts}
    return Draft({"read": reading.read, **books, **passed_over(reading)}, {}, ("queries and texts are not empty",))


def _audit(workspace: Workspace, name: str, payload: Path) -> None:
    for each in (TRAIN, TEST):
        for number, row in enumerate(open_lines(payload, each), 1):
            if not row["query"].strip() or not ("id" in row or row["positives"]):
                raise StoreError(f"{each}.jsonl line {number}: an empty query, or no positive text")


def _sanity(store: Store) -> Verdict:
    return check_contrasts(open_lines(store.directory, TRAIN), open_lines(store.directory, TEST))


CONTRASTIVE = Asset(
    name="contrastive",
    family="contrastive",
    description="""Queries with positive and negative texts as `contrastive.jsonl`, and a held-out `contrastive_test.jsonl` that shares no query with it.

Texts that are only to be embedded stand there with their ids.""",
    version=CONTRASTIVE_VERSION,
    depends=_depends,
    write=_write,
    audit=_audit,
    partitioned=True,
    upstream=(RAW,),
    options=(*PUBLISHED, "test_fraction", "preprocessing"),
    checks=(
        INTEGRITY,
        ACCOUNTING,
        Check(
            "contrast_sanity",
            "Nothing is empty, no text stands twice in a row, no query in both train and test, no id is given twice.",
            _sanity,
        ),
        derived("source_match", "Every line is what its row says, each text on its side.", ContrastsMatch),
        SELECTION,
    ),
    preview=line_preview,
    streams={name: Stream(Lines, name) for name in (TRAIN, TEST)},
    source=FromRows(Contrast, of_stores.contrasts, by_fields),
    kind="json",
    columns=CONTRAST_COLUMNS,
)


ASSETS = (CONTRASTIVE,)
