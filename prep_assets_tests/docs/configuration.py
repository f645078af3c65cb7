"""The tables of docs/configuration.md, made from the fields of the configuration models."""

from __future__ import annotations

import json
import re
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from prep_assets.config import family, models
from prep_assets.config.base import Model, descriptions
from prep_assets.extensions.contrastive.config import Contrasts
from prep_assets.extensions.media.options import BY_NAME, Folder, Images, Media
from prep_assets.extensions.rl.config import Arithmetic

SECTIONS: dict[str, type[Model]] = {
    **models.FAMILIES,
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
    "images": Images,
    "media": Media,
    "folder": Folder,
    "documents": family.Documents,
    "fim": family.Fim,
    "chat": family.Chat,
    "mask": models.MaskPolicy,
    "keep": models.Keep,
    "packing": family.Packing,
    "align": family.Align,
    "blend": family.Blend,
    "windowblend": family.WindowBlend,
    "phase": family.Phase,
    "arithmetic": Arithmetic,
    "contrasts": Contrasts,
}
"""What each table of the page shows: the fields that a model declares itself, not those that it inherits."""

MARKED = re.compile(r"(<!-- fields: (\w+) -->\n).*?(<!-- end of fields -->)", re.DOTALL)


def with_tables(page: str) -> str:
    """The page with each marked table as the models have it now."""
    return MARKED.sub(lambda found: f"{found[1]}\n{rules() if found[2] == 'rules' else table(SECTIONS[found[2]])}\n\n{found[3]}", page)


def table(model: type[Model]) -> str:
    """The fields of one model as a Markdown list, sections on one line."""
    names = {model.model_fields[name].alias or name: name for name in model.model_fields if name in model.__annotations__}
    own = {key: model.model_fields[name] for key, name in names.items()}
    sections = {key: type(field.default).__name__.lower() for key, field in own.items() if isinstance(field.default, BaseModel)}
    items = [_item(key, field, descriptions(model).get(names[key], "")) for key, field in own.items() if key not in sections]
    linked = ", ".join(f"[`{key}`](#{section})" for key, section in sections.items())
    return "\n".join([*items, *([f"- Sections: {linked}"] if linked else [])])


def rules() -> str:
    """The rules of processors, a row for each."""
    rows = []
    for name, rule in BY_NAME.items():
        fields = {key: field for key, field in rule.model_fields.items() if key != "rule"}
        keys = [f"`{key}`" + ("" if field.is_required() else f" ({_default(field)})") for key, field in fields.items()]
        rows.append(_cells(f"`{name}`", ", ".join(keys) or "–", descriptions(rule).get("rule") or _first_line(rule)))
    return "\n".join(["| `rule` | keys (default; all others are required) | meaning |", "|---|---|---|", *rows])


def _item(key: str, field: FieldInfo, description: str) -> str:
    meaning = description or _first_line(field.annotation)
    default, kind = _default(field), _kind(field.annotation, meaning, field.default)
    told = ", ".join(filter(None, (default, kind)))
    return f"- `{key}` ({told}): {meaning}".replace("<", "\\<")


def _cells(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("<", "\\<") for cell in cells) + " |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    return f"`{_yaml(value)}`"


def _yaml(value: Any) -> str:
    """A value as one would write it in YAML, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_yaml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, str) and re.fullmatch(r"[\w./-]+", value):
        return value
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def _kind(annotation: Any, meaning: str, default: Any = None) -> str:
    """A type in words, where default and meaning do not tell it."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if any("Discriminator" in type(each).__name__ for inner in (annotation, *arguments) for each in getattr(inner, "__metadata__", ())):
        return "[a rule](#rules-of-processors)"
    if origin is Annotated:
        return _kind(arguments[0], meaning, default)
    if origin is Literal:
        named = all(re.search(rf"\b{each}(:|,| \()", meaning) for each in arguments)
        return "" if named else ", ".join(f"`{each}`" for each in arguments if str(each) != str(default))
    if origin in (Union, types.UnionType):
        return " or ".join(filter(None, (_kind(each, meaning, default) for each in arguments if each is not type(None))))
    if origin in (tuple, dict):
        of = _of(arguments[origin is dict])
        return f"{'list' if origin is tuple else 'mapping'}{of}" if of or default is None else ""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[section](#{annotation.__name__.lower()})"
    return "" if type(default) is annotation else {int: "integer", float: "number"}.get(annotation, "")


def _of(annotation: Any) -> str:
    """What a list or mapping holds, where it is worth saying."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f" of [{annotation.__name__.lower()}s](#{annotation.__name__.lower()})"
    choices = get_args(annotation) if get_origin(annotation) is Literal else ()
    return f" of {', '.join(f'`{each}`' for each in choices)}" if choices else ""


def _first_line(annotation: Any) -> str:
    return str(annotation.__doc__).split("\n", 1)[0]
