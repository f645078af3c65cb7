"""A workspace in a Dagster project: its resource, its partitions, and its options in the launchpad."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Optional, Union, get_args, get_origin

import dagster as dg
from pydantic import BaseModel, Field, create_model

from prep_assets.caches import bounded_cache
from prep_assets.config.loading import config_dir
from prep_assets.config.models import FAMILIES
from prep_assets.defs.io_manager import IO_MANAGER_KEY, StoreIOManager
from prep_assets.pipeline.workspace import Progress, Workspace

# Where a workspace stands in a Dagster project: its resource, and how its assets are called there.


class WorkspaceResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """One folder of configuration files."""

    configs: str = ""
    """Folder of the families' YAML files; empty: as `PREP_ASSETS_CONFIG_DIR` says, else `configs`."""

    def open(self, stores: Path, progress: Progress | None = None) -> Workspace:
        """The workspace, as its files are at this moment."""
        return Workspace(Path(self.configs).resolve() if self.configs else config_dir(), stores, progress=progress)


@dataclass(frozen=True)
class Site:
    """How the assets of a workspace stand in a project.

    Attributes:
        workspace: what they are made from.
        stores: publishes and opens their stores.
        resource, io_manager_key: the keys of these two in runs.
        prefix: put before every asset key.
        group: the group of all assets; their family where it is empty.
        owners: of every asset.
        tags: of every asset.
        upstream: domain → assets of the project that its source files come from.
    """

    workspace: WorkspaceResource = field(default_factory=WorkspaceResource)
    stores: StoreIOManager = field(default_factory=StoreIOManager)
    resource: str = "workspace"
    io_manager_key: str = IO_MANAGER_KEY
    prefix: tuple[str, ...] = ()
    group: str = ""
    owners: tuple[str, ...] = ("team:data",)
    tags: Mapping[str, str] = field(default_factory=dict)
    upstream: Mapping[str, tuple[dg.AssetKey, ...]] = field(default_factory=dict)

    def open(self) -> Workspace:
        """The workspace for sensors and schedules."""
        return self.workspace.open(self.stores.root)

    def declared(self) -> Workspace:
        """The workspace for definitions: no source is looked at, so that none can keep them from loading."""
        return replace(self.open(), looks=False)

    def in_run(self, context: dg.AssetExecutionContext, progress: Progress | None = None) -> Workspace:
        """The workspace of a run, whose resources may be others than those of the definitions."""
        stores = getattr(context.resources, self.io_manager_key)
        if not isinstance(stores, StoreIOManager):
            raise dg.Failure(
                f"resource {self.io_manager_key!r} is {type(stores).__name__}: assets of prep-assets are stored by a StoreIOManager, or a class derived "
                "from it",
                allow_retries=False,
            )
        workspace: Workspace = getattr(context.resources, self.resource).open(stores.root, progress)
        return workspace

    def key(self, asset: str) -> dg.AssetKey:
        """The key of an asset."""
        return dg.AssetKey([*self.prefix, asset])

    def named(self, name: str) -> str:
        """A name of an op, a job, a sensor or a schedule, which must differ from those of other sites."""
        return "_".join([*self.prefix, name])


# Domains as partitions: static where the configuration names them, dynamic where files do (``domains: auto``).
#
# The instance keeps dynamic partitions, so they survive a restart. They are made anew when definitions load, by each look of a sensor or a schedule, and by
# each run.

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


# The options of `configs/*.yaml` as typed Dagster config: what the launchpad shows, and what overrides the file for one run.
#
# The classes are made from the models themselves, so an option is declared once. Each field is optional: null, or `as_configured` where there is a choice of
# words, means "as the file says", so a run that sets nothing always follows the file as it is at that moment.

AS_CONFIGURED = "as_configured"
PUBLISH = "publish"
NOT_FOR_ONE_RUN = ("domains", "refresh", "exports", "image_tokens")
"""Domains are partitions, the schedule is a definition and exports are assets: all are fixed when the code location loads. How many tokens an image
has is a matter of the model."""


@bounded_cache("run configs", len(FAMILIES))
def options(family: str) -> type[dg.Config]:
    """The run config of a family's assets."""
    publish = (bool, Field(default=False, description="Make what these options give the current store. false: it is a draft."))
    return create_model(
        f"{family.capitalize()}Options", __base__=_optional(FAMILIES[family], f"{family.capitalize()}OptionsOfOneRun"), publish=publish
    )


class Nothing(dg.Config):
    """An export has no options of one run: they stand in the configuration file, which names the asset."""


def chosen(config: dg.Config) -> dict[str, Any]:
    """What a run config sets, as the nested mapping that overrides the file."""
    values = _set_values(config)
    values.pop(PUBLISH, None)
    return values


def publishes(config: dg.Config) -> bool:
    """Whether a run config asks for what its options give to be made current."""
    return bool(getattr(config, PUBLISH, False))


def _optional(model: type[BaseModel], name: str) -> type[dg.Config]:
    fields: dict[str, Any] = {}
    for key, field in model.model_fields.items():
        if key in NOT_FOR_ONE_RUN:
            continue
        annotation, description = field.annotation, field.description or ""
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            nested = _optional(annotation, f"{name}{annotation.__name__}")
            fields[key] = (nested, Field(default_factory=nested, description=(annotation.__doc__ or "").split("\n")[0]))
        elif get_origin(annotation) is Literal:
            # Dagster has no optional choice of words, so "not set" is one of the words
            fields[key] = (Literal[(AS_CONFIGURED, *get_args(annotation))], Field(default=AS_CONFIGURED, description=description))
        else:
            fields[key] = (Optional[_simple(annotation)], Field(default=None, description=description))  # noqa: UP045  (built at run time)
    doc = f"Options of one run; null means as the configuration file says ({name})."
    return create_model(name, __base__=dg.Config, __doc__=doc, **fields)


def _simple(annotation: Any) -> Any:
    """The nearest type that Dagster's config system has: literals inside mappings, and numbers beside words, become text, tuples become lists."""
    arguments = [part for part in get_args(annotation) if part is not type(None)]
    if get_origin(annotation) in (Union, UnionType) and len(arguments) > 1:
        return str  # a number or a word; the model reads either
    if len(arguments) == 1 and get_origin(annotation) is not tuple:
        return _simple(arguments[0])
    origin = get_origin(annotation)
    if origin is dict:
        values = arguments[1]
        if isinstance(values, type) and issubclass(values, BaseModel):
            values = Any  # the model reads them
        return dict.__class_getitem__((str, str if get_origin(values) is Literal else values))
    if origin is tuple:
        return list[str]
    return annotation


def _set_values(config: BaseModel) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key in type(config).model_fields:
        value = getattr(config, key)
        if isinstance(value, BaseModel):
            nested = _set_values(value)
            if nested:
                values[key] = nested
        elif value is not None and value != AS_CONFIGURED:
            values[key] = dict(value) if isinstance(value, Mapping) else value
    return values
