"""Contrastive rows: queries with positive and negative texts → ``contrastive.jsonl``, and a held-out test file, one store per domain."""

from __future__ import annotations

from functools import partial
from typing import Any

from prep_assets.checks.of_stores import ACCOUNTING, INTEGRITY
from prep_assets.checks.of_texts import SOURCE_TEXTS
from prep_assets.checks.rejections import Oracle
from prep_assets.checks.relations import derived
from prep_assets.checks.selection import SELECTION
from prep_assets.checks.sources_again import by_fields, reading_of
from prep_assets.extensions.contrastive.config import Contrastive
from prep_assets.extensions.contrastive.lines import contrast_line
from prep_assets.extensions.contrastive.mutations import CONTRASTS, MATCH, MUTATIONS
from prep_assets.extensions.contrastive.proofs.rows import check_contrasts, rejected_again
from prep_assets.extensions.lines.checks import LinesMatch, rejected_lines
from prep_assets.extensions.lines.proofs import check_lines
from prep_assets.extensions.lines.write import write_lines
from prep_assets.graph.raw import raw_asset, verdict_assets
from prep_assets.pipeline.asset import PUBLISHED, Asset, Check, Corruptions, FromRows, Store, Stream, option_recipe
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.verdict import Verdict
from prep_assets.samples import Contrast, Row
from prep_assets.stores.table import LINES

CONTRASTIVE_RAW = raw_asset("contrastive", "Source files of queries with positive and negative texts, pinned by content hash.")
CONTRASTIVE_VERDICTS = verdict_assets(CONTRASTIVE_RAW)

TRAIN, TEST = "contrastive", "contrastive_test"
COLUMNS = (
    ("query", "string", "What is asked."),
    ("positives", "list of string", "Texts that belong to it."),
    ("negatives", "list of string", "Texts that do not."),
)


def _depends(workspace: Workspace, _: str) -> dict[str, Any]:
    """What a domain's rows depend on; the tokenizer only where texts are measured with it."""
    family = workspace.family(Contrastive)
    measured = ("tokenizer",) if family.preprocessing.max_seq_len is not None else ()
    return {"tokenizer": None, **option_recipe(workspace, family, ("test_fraction", "preprocessing", *measured))}


def _sanity(store: Store) -> Verdict:
    return check_contrasts(store.lines_of(TRAIN), store.lines_of(TEST))


def _rejections(store: Store) -> Oracle:
    """What derives again why a row is rejected for its texts."""
    reading, limit = reading_of(store, Contrast), store.recipe["preprocessing"]["max_seq_len"]
    encoder = None if limit is None else store.vocabulary.encoder

    def judge(reason: str, row: Row) -> str | None:
        if not reading.known:
            return None
        length = (lambda text: 0) if encoder is None else lambda text: len(encoder.encode(text).ids)
        return rejected_again(reason, reading.texts(row), length, limit)

    return judge


CONTRASTIVE = Asset(
    name="contrastive",
    family="contrastive",
    description="""Queries with positive and negative texts as `contrastive.jsonl`, and a held-out `contrastive_test.jsonl` that shares no query with it.

Texts that are only to be embedded stand there with their ids.""",
    write=partial(write_lines, doing="contrast"),
    promises=("queries and texts are not empty",),
    inputs=(("raw", CONTRASTIVE_RAW), *CONTRASTIVE_VERDICTS.items()),
    depends=_depends,
    partitioned=True,
    options=(*PUBLISHED, "test_fraction", "preprocessing"),
    checks=(
        INTEGRITY,
        ACCOUNTING,
        Check(
            CONTRASTS,
            "Nothing is empty, no text stands twice in a row, no query in both train and test, no id is given twice.",
            _sanity,
        ),
        derived(MATCH, "Every line is what its row says, each text on its side.", LinesMatch),
        SELECTION,
        SOURCE_TEXTS,
    ),
    streams={TRAIN: Stream(LINES, TRAIN), TEST: Stream(LINES, TEST, held_out=True)},
    source=FromRows(
        Contrast, rejected_lines, by_fields, oracles={"contrast": _rejections}, line=contrast_line, lists=("positives", "negatives")
    ),
    kind="json",
    columns=COLUMNS,
    corruptions=(
        Corruptions(
            rows=lambda store: LinesMatch(store).lines(),
            mutations=MUTATIONS,
            judges={MATCH: check_lines, CONTRASTS: lambda lines: check_contrasts([line.stored for line in lines], [])},
        ),
    ),
)


ASSETS = (CONTRASTIVE_RAW, *CONTRASTIVE_VERDICTS.values(), CONTRASTIVE)
