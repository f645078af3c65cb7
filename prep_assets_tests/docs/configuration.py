"""The tables of docs/configuration.md, made from the fields of the configuration models."""

from __future__ import annotations

import json
import re
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from prep_assets.config import base as image_rules
from prep_assets.config import family, models

SECTIONS: dict[str, type[BaseModel]] = {
    "family": family.Family,
    "domain": family.Domain,
    "preprocessing": family.Preprocessing,
    "decontaminate": family.Decontaminate,
    "quality": family.Quality,
    "bound": family.Bound,
    "limits": family.Limits,
    "output": family.Output,
    "cluster": family.Cluster,
    "refresh": family.Refresh,
    "export": family.Export,
    "images": family.Images,
    **{f"rule_{name}": rule for name, rule in image_rules.RULES.items()},
    "pretrain": models.Pretrain,
    "documents": family.Documents,
    "fim": family.Fim,
    "chat": family.Chat,
    "sft": models.Sft,
    "keep": models.Keep,
    "packing": family.Packing,
    "blend": family.Blend,
    "windowblend": family.WindowBlend,
    "phase": family.Phase,
    "preference": models.Preference,
    "rl": models.Rl,
    "arithmetic": models.Arithmetic,
    "contrastive": models.Contrastive,
    "contrasts": models.Contrasts,
    "eval": models.Eval,
}
"""What each table of the page shows: the fields that a model declares itself, not those that it inherits."""

MARKED = re.compile(r"(<!-- fields: (\w+) -->\n).*?(<!-- end of fields -->)", re.DOTALL)


def with_tables(page: str) -> str:
    """The page with each marked table as the models have it now."""
    return MARKED.sub(lambda found: f"{found[1]}{table(SECTIONS[found[2]])}\n{found[3]}", page)


def table(model: type[BaseModel]) -> str:
    """The fields of one model as a Markdown table."""
    own = [name for name in model.model_fields if name in model.__annotations__]
    rows = [_row(model.model_fields[name].alias or name, model.model_fields[name]) for name in own]
    return "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *rows])


def _row(key: str, field: FieldInfo) -> str:
    kind = _kind(field.annotation, field.metadata)
    if field.default is None:
        kind = kind.removesuffix(", or null")
    cells = [f"`{key}`", kind, _default(field), field.description or _first_line(field.annotation)]
    return "| " + " | ".join(cell.replace("|", "\\|").replace("<", "\\<") for cell in cells) + " |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if isinstance(value, BaseModel):
        changed = {name: getattr(value, name) for name, each in type(value).model_fields.items() if getattr(value, name) != each.default}
        return ", ".join(f"`{name}: {_yaml(each)}`" for name, each in changed.items())
    return f"`{_yaml(value)}`"


def _yaml(value: Any) -> str:
    """A value as one would write it in YAML, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_yaml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, str) and re.fullmatch(r"[\w./-]+", value):
        return value
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def _kind(annotation: Any, bounds: list[Any]) -> str:
    """A type in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if any("Discriminator" in type(each).__name__ for inner in (annotation, *arguments) for each in getattr(inner, "__metadata__", ())):
        return "[a rule](#rules-of-processors), or null"
    if origin is Annotated:
        return _kind(arguments[0], [])
    if origin is Literal:
        return ", ".join(f"`{each}`" for each in arguments)
    if origin in (Union, types.UnionType):
        return ", ".join([_kind(each, bounds) for each in arguments if each is not type(None)] + ["or null"])
    if origin is tuple:
        return f"list of {_plural(arguments[0])}"
    if origin is dict:
        return f"mapping to {_plural(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[section](#{annotation.__name__.lower()})"
    words = {str: "string", bool: "true or false", int: "integer", float: "number", Any: "anything"}
    return " ".join([words[annotation], ", ".join(_bounds(bounds))]).strip()


def _plural(annotation: Any) -> str:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[{annotation.__name__.lower()}s](#{annotation.__name__.lower()})"
    named = {str: "strings", int: "integers", float: "numbers", Any: "values"}
    return named.get(annotation) or _kind(annotation, [])


def _bounds(metadata: list[Any]) -> Iterator[str]:
    ends = {kind: getattr(bound, kind.__name__.lower()) for bound in metadata for kind in (Ge, Le) if isinstance(bound, kind)}
    if len(ends) == 2:
        yield f"{ends[Ge]}..{ends[Le]}"
        return
    for bound in metadata:
        for kind, sign in ((Ge, "≥"), (Gt, ">"), (Le, "≤"), (Lt, "<")):
            if isinstance(bound, kind):
                yield f"{sign} {getattr(bound, kind.__name__.lower())}"


def _first_line(annotation: Any) -> str:
    return str(annotation.__doc__).split("\n", 1)[0]
