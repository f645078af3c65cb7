"""The options of `configs/*.yaml` as typed Dagster config: what the launchpad shows, and what overrides the file for one run.

The classes are made from the models themselves, so an option is declared once. Each field is optional: null, or `as_configured` where there
is a choice of words, means "as the file says", so a run that sets nothing always follows the file as it is at that moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Any, Literal, Optional, Union, get_args, get_origin

import dagster as dg
from pydantic import BaseModel, Field, create_model

from prep_assets.caches import bounded_cache
from prep_assets.config.models import FAMILIES

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
