"""`prep-assets dataset-info`: LLaMA-Factory's dataset_info.json as domains."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prep_assets.cli.console import out
from prep_assets.errors import ConfigError


def dataset_info(
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False, help="A dataset_info.json.")],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]…", show_default=False, help="Data sets; all where none is named.")
    ] = None,
) -> None:
    """Print the data sets of a LLaMA-Factory dataset_info.json as domains, to paste into the configuration."""
    from prep_assets.schemas.account import in_one_line
    from prep_assets.schemas.dataset_info import domain_of, read_dataset_info

    if not file.is_file():
        raise ConfigError(f"no file {file}")
    entries = read_dataset_info(file.read_text("utf-8"), str(file))
    found = {name: domain_of(name, entries) for name in names or entries}
    console = out()
    for family in sorted({each.family for each in found.values()}):
        console.print(f"# {family}.yaml, files relative to it\ndomains:", highlight=False, markup=False)
        for name, each in found.items():
            if each.family == family:
                for remark in each.remarks:
                    console.print(f"  # {remark}", soft_wrap=True, highlight=False, markup=False)
                console.print(f"  {name}: {in_one_line(each.domain)}", soft_wrap=True, highlight=False, markup=False)
