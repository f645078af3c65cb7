"""A workspace in a Dagster project: its resource, its partitions, and its options in the launchpad."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Optional, TypeGuard, Union, get_args, get_origin

import dagster as dg
from msgspec import Struct, field
from pydantic import BaseModel, Field, PrivateAttr, TypeAdapter, ValidationError, create_model
from pydantic_core import to_jsonable_python

from prep_assets.config.base import Model, descriptions
from prep_assets.config.family import Family
from prep_assets.config.loading import config_dir
from prep_assets.config.models import FAMILIES
from prep_assets.engine import Statuses
from prep_assets.extensions.dagster.io_manager import IO_MANAGER_KEY, StoreIOManager
from prep_assets.pipeline.source_files import Progress
from prep_assets.pipeline.workspace import Workspace

# A workspace in a Dagster project: its resource, and the keys of its assets.


class WorkspaceResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """One folder of configuration files."""

    configs: str = ""
    """Folder of the families' YAML files; empty: `PREP_ASSETS_CONFIG_DIR`, else `configs`."""

    _seen: Statuses | None = PrivateAttr(None)

    def seen(self, statuses: Statuses | None = None) -> Statuses | None:
        """What the last step of this run saw of the stores, replaced by `statuses`. Dagster makes a resource for each run, and shares it between its
        steps if one process takes them."""
        before, self._seen = self._seen, statuses
        return before

    def open(self, stores: Path, progress: Progress | None = None) -> Workspace:
        """Open the workspace from its files as they are now."""
        return Workspace(Path(self.configs).resolve() if self.configs else config_dir(), stores, progress=progress)


class Site(Struct, frozen=True):
    """The place of a workspace's assets in a Dagster project.

    Attributes:
        workspace: the resource with their configuration.
        stores: the IO manager that publishes and opens their stores.
        resource, io_manager_key: resource keys of these two.
        prefix: prefix of every asset key.
        group: group of all assets; empty: the family.
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
        """The workspace for definitions, which reads no source, so that none can keep definitions from loading."""
        return replace(self.open(), looks=False)

    def in_run(self, context: dg.AssetExecutionContext, progress: Progress | None = None) -> Workspace:
        """The workspace of a run, from the run's own resources."""
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
        """A name of an op, job, sensor or schedule, unique among sites."""
        return "_".join([*self.prefix, name])


# Domains as partitions: static where the configuration names them, dynamic where files do (``domains: auto``).
#
# The instance keeps dynamic partitions across restarts. They are updated when definitions load, by every tick of a sensor or schedule, and by every run.

Partitions = dg.StaticPartitionsDefinition | dg.DynamicPartitionsDefinition


def domains(site: Site, family: str) -> Partitions:
    """The domains of a family as partitions; static ones in the order of the configuration."""
    declared = site.declared().declared(FAMILIES[family])
    return found_domains(site, family) if declared.finds_domains else dg.StaticPartitionsDefinition(list(declared.domains))


def found_domains(site: Site, family: str) -> dg.DynamicPartitionsDefinition:
    """The dynamic partitions of a family whose files name its domains."""
    return dg.DynamicPartitionsDefinition(name=site.named(f"{family}_domains"))


def register(instance: dg.DagsterInstance, site: Site, workspace: Workspace, family: str) -> None:
    """Update a family's dynamic partitions to the domains that its files name: add new ones, delete removed ones."""
    if not workspace.declared(FAMILIES[family]).finds_domains:
        return
    now = workspace.family(FAMILIES[family])
    if now.finds_domains:
        return  # not resolved yet
    name = found_domains(site, family).name
    assert name is not None
    registered = instance.get_dynamic_partitions(name)
    if new := [domain for domain in now.domains if domain not in registered]:
        instance.add_dynamic_partitions(name, new)
    for domain in registered:
        if domain not in now.domains:
            instance.delete_dynamic_partition(name, domain)


def register_at_load(site: Site, families: Sequence[str]) -> None:
    """Register dynamic domains when definitions load, so that the first command and the UI find their partitions. Errors of files or of the
    instance are logged, so that definitions load; runs raise them."""
    for family in families:
        try:
            workspace = site.open()
            if workspace.declared(FAMILIES[family]).finds_domains and (history := _persistent_instance()):
                with history as instance:
                    register(instance, site, workspace, family)
        except Exception as error:  # databases fail in many ways
            logging.getLogger("prep_assets").error("%s: domains are not looked for yet: %s", family, error)


def _persistent_instance() -> dg.DagsterInstance | None:
    """The persistent Dagster instance, if there is one."""
    if os.environ.get("DAGSTER_HOME"):
        return dg.DagsterInstance.get()
    return dg.DagsterInstance.from_config(str(Path.cwd())) if Path("dagster.yaml").is_file() else None


# The options of `configs/*.yaml` as typed Dagster config, for the launchpad; they override the file for one run.
#
# The classes are generated from the pydantic models, so an option is declared once. Every field is optional and shows the file's value of when the
# definitions loaded. That value, null, or `as_configured` for literals, sets nothing: such a run follows the file as it is at run time.

AS_CONFIGURED = "as_configured"
PUBLISH = "publish"
NOT_FOR_ONE_RUN = ("domains", "refresh", "exports", "image_tokens", "audio_tokens", "video_tokens")
"""Domains are partitions, the schedule is a definition, exports are assets: all are fixed when the code location loads. Tokens per image are a property of
the model."""


def options(family: str, configured: Family | None = None) -> type[dg.Config]:
    """The run config of a family's assets, with the values of its configuration as defaults."""
    publish = (bool, Field(default=False, description="Make what these options give the current store. false: it is a draft."))
    return create_model(
        f"{family.capitalize()}Options",
        __base__=_optional(FAMILIES[family], f"{family.capitalize()}OptionsOfOneRun", configured),
        publish=publish,
    )


class Nothing(dg.Config):
    """An export has no options of one run: they stand in the configuration file, which names the asset."""


def chosen(config: dg.Config) -> dict[str, Any]:
    """The options that a run config sets, as nested overrides of the file."""
    values = _set_values(config)
    values.pop(PUBLISH, None)
    return values


def publishes(config: dg.Config) -> bool:
    """Whether a run config asks to publish the store instead of keeping a draft."""
    return bool(getattr(config, PUBLISH, False))


def _optional(model: type[Model], name: str, configured: Model | None) -> type[dg.Config]:
    fields: dict[str, Any] = {}
    described = descriptions(model)
    for key, field in model.model_fields.items():
        if key in NOT_FOR_ONE_RUN:
            continue
        annotation, description = field.annotation, described.get(key, "")
        value = None if configured is None else getattr(configured, key)
        if _is_model(annotation):
            nested = _optional(annotation, f"{name}{annotation.__name__}", value)
            fields[key] = (nested, Field(default_factory=nested, description=(annotation.__doc__ or "").split("\n")[0]))
        elif get_origin(annotation) is Literal:
            # Dagster has no optional literals, so "not set" is one of the choices
            default = AS_CONFIGURED if value is None else value
            fields[key] = (Literal[(AS_CONFIGURED, *get_args(annotation))], Field(default=default, description=description))
        else:
            kind = _dagster_type(annotation)
            described_as = f"{description} {_bounds(field.metadata)}".strip()
            fields[key] = (Optional[kind], Field(default=_default(configured, key, kind), description=described_as))  # noqa: UP045  (built at run time)
    doc = f"Options of one run; null means as the configuration file says ({name})."
    return create_model(name, __base__=dg.Config, __doc__=doc, **fields)


def _bounds(rules: Sequence[Any]) -> str:
    """What a number may be. Dagster's types have no bounds: the run that breaks one fails, and names option, bound and value."""
    signs = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    found = [f"{words} {getattr(rule, name):,}" for rule in rules for name, words in signs.items() if getattr(rule, name, None) is not None]
    return f"({', '.join(found)})" if found else ""


def _default(configured: Model | None, key: str, kind: Any) -> Any:
    """The value of an option as Dagster's type has it; `None` where it has no such value."""
    value = None if configured is None else to_jsonable_python(getattr(configured, key))
    if kind is str and isinstance(value, int | float):
        return str(value)
    if isinstance(value, Mapping) and None in value.values():
        return None  # Dagster's mappings have no null
    try:
        return TypeAdapter(Optional[kind]).validate_python(value, strict=True)  # noqa: UP045  (built at run time)
    except ValidationError:
        return None


def _dagster_type(annotation: Any) -> Any:
    """The nearest type of Dagster's config system: unions and literals inside mappings become strings, tuples become lists."""
    arguments = [part for part in get_args(annotation) if part is not type(None)]
    if get_origin(annotation) in (Union, UnionType) and len(arguments) > 1:
        return str  # the model parses it
    if len(arguments) == 1 and get_origin(annotation) is not tuple:
        return _dagster_type(arguments[0])
    origin = get_origin(annotation)
    if origin is dict:
        values = arguments[1]
        bare = get_args(values)[0] if get_origin(values) is Annotated else values
        values = Any if _is_model(bare) or get_origin(bare) is tuple else values  # the model validates them
        return dict.__class_getitem__((str, str if get_origin(values) is Literal else values))
    if origin is tuple:
        return list[str]
    return dict[str, Any] if _is_model(annotation) else annotation


def _is_model(annotation: Any) -> TypeGuard[type[Model]]:
    return isinstance(annotation, type) and issubclass(annotation, Model)


def _set_values(config: BaseModel) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, field in type(config).model_fields.items():
        value = getattr(config, key)
        if isinstance(value, BaseModel):
            nested = _set_values(value)
            if nested:
                values[key] = nested
        elif value is not None and value not in (AS_CONFIGURED, field.default):
            values[key] = dict(value) if isinstance(value, Mapping) else value
    return values
