"""A family: its configuration, `glossary.yaml`, and one asset beside the pinned sources."""

from functools import partial
from typing import ClassVar

from prep_assets.checks.of_stores import ACCOUNTING, INTEGRITY
from prep_assets.checks.relations import derived
from prep_assets.checks.selection import SELECTION
from prep_assets.checks.sources_again import by_fields
from prep_assets.config.family import Family
from prep_assets.extensions.lines.checks import LinesMatch, rejected_lines
from prep_assets.extensions.lines.write import write_lines
from prep_assets.graph.raw import raw_asset
from prep_assets.pipeline.asset import Asset, FromRows, LineOf, Stream
from prep_assets.pipeline.examples import AnyExample, as_example
from prep_assets.pipeline.workspace import Workspace
from prep_assets.samples import Sample
from prep_assets.stores.table import LINES


class Glossary(Family):
    """`configs/glossary.yaml`: terms with their meanings."""

    form_of_rows = Sample
    tokenizer: str = ""
    test_fraction: ClassVar[float] = 0.0

    @staticmethod
    def asked(example: object) -> object:
        """The term, which decides whether it is held out."""
        return as_example(example).turns[0].text


def line(workspace: Workspace) -> LineOf:
    """The line of a term."""

    def of(content: AnyExample) -> tuple[AnyExample, object]:
        term, meaning = as_example(content).turns
        return content, lambda form: {"term": term.text, "meaning": meaning.text}

    return of


RAW = raw_asset("glossary", "Files of terms, pinned by content hash.")
GLOSSARY = Asset(
    name="glossary",
    family="glossary",
    description="Terms with their meanings as `glossary.jsonl`.",
    write=partial(write_lines, doing="glossary"),
    inputs=(("raw", RAW),),
    partitioned=True,
    options=("preprocessing",),
    checks=(INTEGRITY, ACCOUNTING, SELECTION, derived("source_match", "Every line is what its row says.", LinesMatch)),
    streams={"glossary": Stream(LINES, "glossary"), "glossary_test": Stream(LINES, "glossary_test", held_out=True)},
    source=FromRows(Sample, rejected_lines, by_fields, line=line),
    kind="json",
)

CONFIG, ASSETS = Glossary, (RAW, GLOSSARY)
