"""One partition set per family: its domains."""

from __future__ import annotations

from functools import cache

import dagster as dg

from prep_assets.config.models import FAMILIES
from prep_assets.pipelines.workspace import Workspace


@cache
def domains(family: str) -> dg.StaticPartitionsDefinition:
    """The domains that the family's configuration declares, in its order."""
    return dg.StaticPartitionsDefinition(list(Workspace.open().family(FAMILIES[family]).domains))
