"""The dataset card of the Hugging Face Hub: ``README.md`` with YAML before its text.

https://github.com/huggingface/hub-docs/blob/main/datasetcard.md. Every split names its files one by one, so that nothing else in a repository is
read, and declares its columns, so that no reader guesses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import yaml

from prep_assets.neighbours.description import Description
from prep_assets.neighbours.tables import Column, Kind, Table
from prep_assets.records.hub import hub_address, is_hub

UNKNOWN = "unknown"
SIZES = (("n<1K", 10**3), ("1K<n<10K", 10**4), ("10K<n<100K", 10**5), ("100K<n<1M", 10**6), ("1M<n<10M", 10**7), ("10M<n<100M", 10**8))
"""The Hub's names of sizes, each with the number of rows that it ends below."""
_DTYPES = {"double": "float64", "float": "float32", "halffloat": "float16"}


def card(description: Description) -> str:
    """The text of ``README.md``."""
    matter = yaml.safe_dump(front_matter(description), sort_keys=False, allow_unicode=True, width=120)
    return f"---\n{matter}---\n\n" + "\n\n".join(_text(description)) + "\n"


def front_matter(description: Description) -> dict[str, Any]:
    """What the Hub and ``datasets.load_dataset`` read."""
    rows = sum(table.rows for table in description.tables)
    names = list(dict.fromkeys(table.name for table in description.tables))
    licence = list(description.licence) or [UNKNOWN]
    hub = [hub_address(address).repository for each in description.addresses.values() for address in each if is_hub(address)]
    return {
        "license": licence[0] if len(licence) == 1 else licence,
        "pretty_name": description.name,
        **({"source_datasets": list(dict.fromkeys(hub))} if hub else {}),
        "size_categories": [next((name for name, most in SIZES if rows < most), "n>100M")],
        "tags": ["prep-assets"],
        "configs": [
            {
                "config_name": name,
                **({"default": True} if name == names[0] else {}),
                "data_files": [{"split": table.split, "path": list(table.files)} for table in description.tables if table.name == name],
            }
            for name in names
        ],
        "dataset_info": [_info(description, [table for table in description.tables if table.name == name]) for name in names],
    }


def _info(description: Description, splits: Sequence[Table]) -> dict[str, Any]:
    sizes = [sum(description.files[file][0] for file in table.files) for table in splits]
    return {
        "config_name": splits[0].name,
        "features": features(splits[0].columns),
        "splits": [{"name": each.split, "num_bytes": size, "num_examples": each.rows} for each, size in zip(splits, sizes, strict=True)],
        "download_size": sum(sizes),
        "dataset_size": sum(sizes),
    }


def features(columns: Iterable[Column]) -> list[dict[str, Any]]:
    """Columns as ``datasets.Features`` are written in YAML."""
    return [{"name": column.name, **_feature(column.kind)} for column in columns]


def _feature(kind: Kind) -> dict[str, Any]:
    if isinstance(kind, str):
        return {"dtype": _DTYPES.get(kind, kind)}
    if isinstance(kind, dict):
        return {"struct": [{"name": name, **_feature(each)} for name, each in kind.items()]}
    of = _feature(kind[0])
    return {"list": of.get("dtype") or of.get("struct") or of}


def _text(description: Description) -> Iterable[str]:
    yield f"# {description.name}\n\n{description.summary}"
    yield _table(("split", "rows", "columns"), [
        (f"{table.name}, {table.split}", f"{table.rows:,}", ", ".join(column.name for column in table.columns)) for table in description.tables
    ])  # fmt: skip
    yield "## Counts\n\n" + _table(("", ""), [(name, f"{count:,}") for name, count in description.counts.items()])
    if description.refused:
        yield "Records that were refused, with the reason:\n\n" + _table(
            ("", "records"), [(step, f"{count:,}") for step, count in description.refused.items()]
        )
    else:
        yield "No record was refused."
    yield f"## Sources\n\nLicence of the whole: {', '.join(description.licence) or UNKNOWN}."
    if description.sources:
        yield _table(("domain", "licence", "from"), [
            (name, description.licences[name] or UNKNOWN, ", ".join(description.addresses[name]) or "files of the builder") for name in description.licences
        ])  # fmt: skip
        yield _table(("domain", "file", "rows", "sha256"), [
            (each.domain, each.name + " (held out)" * each.held_out, f"{each.rows:,}", f"`{each.sha256}`") for each in description.sources
        ])  # fmt: skip
    yield "## Hashes\n\n" + _table(("of", "sha256"), [(name, f"`{value}`") for name, value in description.hashes.items()])
    yield "`manifest.json` has the hash of every file."
    yield "## Checks\n\nOver all rows of each store on the way:\n\n" + _table(
        ("store", "holds"), [(asset, ", ".join(held)) for asset, held in description.proofs.items()]
    )
    yield f"## Build it again\n\nWith the same configuration and sources, equal bytes:\n\n```bash\n{description.command}\n```"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines)
