"""Domains as partitions: static where the configuration names them, dynamic where files do (``domains: auto``).

The instance keeps dynamic partitions, so they survive a restart. They are made anew when definitions load, by each look of a sensor or a
schedule, and by each run.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

import dagster as dg

from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import FAMILIES
from prep_assets.defs.site import Site

Partitions = dg.StaticPartitionsDefinition | dg.DynamicPartitionsDefinition


def domains(site: Site, family: str) -> Partitions:
    """The domains of a family; those that its configuration names, in its order."""
    declared = site.declared().declared(FAMILIES[family])
    return found_domains(site, family) if declared.finds_domains else dg.StaticPartitionsDefinition(list(declared.domains))


def found_domains(site: Site, family: str) -> dg.DynamicPartitionsDefinition:
    """The domains that the files of a family name."""
    return dg.DynamicPartitionsDefinition(name=site.named(f"{family}_domains"))


def register(instance: dg.DagsterInstance, site: Site, workspace: Workspace, family: str) -> None:
    """Let the instance's partitions of a family be the domains that its files name: add new ones, take out those that are gone."""
    if not workspace.declared(FAMILIES[family]).finds_domains:
        return
    now = workspace.family(FAMILIES[family])
    if now.finds_domains:
        return  # not looked up yet
    name = found_domains(site, family).name
    assert name is not None
    there = instance.get_dynamic_partitions(name)
    if new := [each for each in now.domains if each not in there]:
        instance.add_dynamic_partitions(name, new)
    for each in there:
        if each not in now.domains:
            instance.delete_dynamic_partition(name, each)


def register_at_load(site: Site, families: Sequence[str]) -> None:
    """Register what files name when definitions load, so that the first command and the UI find their partitions. What is wrong with files, or with
    the history, keeps no definitions from loading: runs say it."""
    for family in families:
        try:
            workspace = site.open()
            if workspace.declared(FAMILIES[family]).finds_domains and (history := _history()):
                with history as instance:
                    register(instance, site, workspace, family)
        except Exception as error:  # a database may fail in many ways
            logging.getLogger("prep_assets").error("%s: domains are not looked for yet: %s", family, error)


def _history() -> dg.DagsterInstance | None:
    """The instance that commands here use, where it lasts longer than they do."""
    if os.environ.get("DAGSTER_HOME"):
        return dg.DagsterInstance.get()
    return dg.DagsterInstance.from_config(str(Path.cwd())) if Path("dagster.yaml").is_file() else None
