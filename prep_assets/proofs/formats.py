"""Definitions of row formats in JSON Schema: which rows a schema takes, written by its page and not by its code.

``formats/<schema>.json`` is valid JSON Schema (draft 2020-12) for the default options; editors and people read it as well. What an option changes is marked:

- ``x-option``, in the schema of a property: the option that names the property, or several; null removes it
- ``x-set``: keyword → option that gives its value; null removes it
- ``x-when``: option → value, or ``{"not": value}``; otherwise the schema is left out of its list or properties
- ``x-role``: `enum` becomes the tags of a role, ``*`` all, ``call`` those of messages that are calls; ``x-roles`` and ``x-calls`` of a definition: tag →
  role, and tags of calls, where ``$name`` stands for an option
- ``x-options``: the options with their defaults; ``x-bind``: options of `common.json` → values, ``$name`` for an option
- ``x-schema`` with ``x-bind``: the definition is that of another schema with these options, and maybe with its own ``x-columns`` and ``x-beyond``
- ``x-or``: those that accept a row as well, where their ``x-when`` holds
- ``x-aliases``: other names of the schema; ``x-gives``: type that rows become → the schema that reads them then

What JSON Schema cannot say stands there as well:

- ``x-columns``: the columns with texts in the order in which these stand in a record, see `source_rows.columns_of`
- ``x-tokens``: the rule that reads ids and weights of a row of token ids
- ``x-runs``: the rule that reads the calls of a model in a row of agents' runs; ``x-said``: that which reads its messages, where these say all that ids do
- ``x-writes``: what its schema writes between or around texts
- ``x-beyond``: reasons for rejecting a row that the definition accepts, ``*`` for any other → the rule that derives it again, null where none does; before
  them names of such lists in `common.json`. ``x-open``: it is of the outermost objects only, and any reason without a rule is beyond it
- ``x-chat``: the rule that makes of a row a chat of the form `messages`, whose definition judges for it what is beyond this one

JSON in a text is ``contentSchema``, which is asserted here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec import Struct

from prep_assets.caches import bounded_cache
from prep_assets.proofs.second_reading import DEPTH, depth_of, no_number, unique
from prep_assets.samples import Row

FOLDER = Path(__file__).with_name("formats")
_COMMON = "common.json#/$defs/"

Roles = Mapping[str, str]


class Format(Struct, frozen=True):
    """The definition of a schema with its options.

    Attributes:
        name: the schema whose rows it defines: another's, where a definition only names that with other options.
        options: of that schema, and those of `common.json`.
        roles: tags of messages → roles.
        calls: tags of messages whose content is calls.
        fits: whether it accepts a row; `None` where the row cannot be judged, as by its depth.
        reasons: the schema whose reasons beyond it count.
        others: further definitions whose rows the schema takes as well.
        dotted: names of options with dots: values of objects in a row, unless a field has the whole name.
    """

    name: str
    options: Mapping[str, Any]
    roles: Roles
    calls: Sequence[str]
    fits: Callable[[Row], bool | None]
    reasons: str = ""
    others: Sequence[Format] = ()
    dotted: Sequence[str] = ()

    def of(self, row: Row) -> tuple[Format, Row] | bool | None:
        """Return the definition that accepts a row, and the row as it reads it; false if none does, `None` where it cannot be judged."""
        found = self._of(row)
        return self._of(plain(row)) if found is False else found

    def _of(self, row: Row) -> tuple[Format, Row] | bool | None:
        unsure = False
        for each in (self, *self.others):
            fits = each.fits(row)
            if fits:
                return each, each.lifted(row)
            unsure |= fits is None
        return None if unsure else False

    def lifted(self, row: Row) -> Row:
        """Return a row with the values at dotted paths under the whole path."""
        return _lifted(row, self.dotted) if self.dotted else row


@cache
def files() -> Mapping[str, Path]:
    """Return the file of each definition, by name: of this folder, and of the proofs of extensions."""
    found = (*FOLDER.glob("*.json"), *FOLDER.parents[1].glob("extensions/*/proofs/formats/*.json"))
    return {path.stem: path for path in sorted(found, key=lambda path: path.stem)}


@cache
def _rule_modules() -> Sequence[str]:
    """Return the modules with rules of rows and of columns: of this package, then of extensions."""
    found = sorted(path.parts[-3] for path in FOLDER.parents[1].glob("extensions/*/proofs/rules.py"))
    own = (f"prep_assets.proofs.{name}" for name in ("row_rules", "source_rules"))
    return [*own, *(f"prep_assets.extensions.{name}.proofs.rules" for name in found)]


@lru_cache(1 << 9)
def rule_named(name: str) -> Callable[..., Any]:
    """Return the rule that definitions call by this name."""
    rule: Callable[..., Any] = next(rules[name] for module in _rule_modules() if name in (rules := vars(import_module(module))))
    return rule


def defined() -> list[str]:
    """Return the schemas that have a definition."""
    return [name for name in files() if name != "common"]


@lru_cache(256)
def definition_of(name: str) -> dict[str, Any]:
    """Return the definition of a schema as it is written."""
    definition: dict[str, Any] = json.loads(files()[name].read_text("utf-8"))
    return definition


@cache
def _by_alias() -> dict[str, str]:
    return {alias: name for name in defined() for alias in definition_of(name).get("x-aliases", ())}


def resolved(name: str, options: Mapping[str, Any], gives: str = "") -> tuple[str, dict[str, Any], str] | None:
    """Return the schema whose definition says what rows are, all of its options, and the schema whose columns and reasons count; `None` if there is none.
    `gives`: name of the type that rows become."""
    name = name if name in files() else _by_alias().get(name, "")
    if not name:
        return None
    name = definition_of(name).get("x-gives", {}).get(gives, name)
    definition = definition_of(name)
    known = {**definition.get("x-options", {}), **options}
    for nested in definition.get("x-nested", ()):  # ModelLink's options are in one mapping
        known |= _flat(known.pop(nested, None) or {})
    bound = _bound(definition, known)
    found = (name, bound | known, name) if "x-schema" not in definition else resolved(definition["x-schema"], bound)
    return found if found is None or "x-columns" not in definition else (*found[:2], name)


def roles_of(name: str, options: Mapping[str, Any]) -> tuple[Roles, Sequence[str]]:
    """Return tag → role of the messages of a definition, and the tags of those that are calls."""
    definition, roles = definition_of(name), dict[str, str]()
    for tag, role in definition.get("x-roles", {}).items():
        given = options.get(tag[1:]) if tag.startswith("$") else tag
        roles |= given if isinstance(given, Mapping) else {given: role} if given is not None else {}
    named = (str(options[tag[1:]]) if tag.startswith("$") else tag for tag in definition.get("x-calls", ()))
    return roles, [tag for tag in dict.fromkeys(named) if roles.get(tag) == "assistant"]


@bounded_cache("definitions of row formats", 64, key=lambda name, options: (name, repr(options)))
def format_of(name: str, options: Mapping[str, Any]) -> Format | None:
    """Return the definition of a schema with these options; `None` if it has none."""
    found = resolved(name, options)
    if found is None:
        return None
    name, known, reasons = found
    definition, (roles, calls) = definition_of(name), roles_of(name, known)
    others = [
        format
        for each in definition.get("x-or", ())
        if _applies(each, known) and (format := format_of(each["x-schema"], _bound(each, known)))
    ]
    tags = {"*": [*roles], "call": calls} | {role: [tag for tag in roles if roles[tag] == role] for role in ("user", "assistant")}
    whole = _instance({**definition, "$defs": {**definition_of("common")["$defs"], **definition.get("$defs", {})}}, known, tags)
    fields = [value for option, value in known.items() if option.endswith("_key")]
    listed = [key for value in fields for key in (value if isinstance(value, list | tuple) else [value])]
    dotted = [key for key in listed if isinstance(key, str) and "." in key]
    return Format(name, known, roles, calls, _validator(whole, dotted), reasons, others, dotted)


def _flat(given: Mapping[str, Any]) -> dict[str, Any]:
    tags = given.get("tags") or {}
    return {**{f"{key}_key": value for key, value in given.items() if key != "tags"}, **tags}


def _bound(definition: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    bound = definition.get("x-bind", {}).items()
    return {key: options[value[1:]] if isinstance(value, str) and value.startswith("$") else value for key, value in bound}


def _instance(node: Any, options: Mapping[str, Any], tags: Mapping[str, Sequence[str]]) -> Any:
    """Return a definition with the options put in; `tags`: see ``x-role``."""
    if isinstance(node, list):
        return [_instance(each, options, tags) for each in node if _applies(each, options)]
    if not isinstance(node, dict):
        return node.removeprefix("common.json") if isinstance(node, str) and node.startswith(_COMMON) else node
    node = dict(node)
    for keyword, option in node.pop("x-set", {}).items():
        node[keyword] = options.get(option)
        if node[keyword] is None:
            del node[keyword]
    if (role := node.pop("x-role", None)) is not None:
        node["enum"] = tags[role]
    if "properties" in node:
        names = {key: _names(key, sub, options) for key, sub in node["properties"].items() if _applies(sub, options)}
        node["properties"] = {name: node["properties"][key] for key, listed in names.items() for name in listed}
        node["required"] = [name for key in node.get("required", ()) for name in names.get(key, [key])]
    made = {key: _instance(value, options, tags) for key, value in node.items()}
    if made.get("allOf") == []:
        del made["allOf"]
    if (schema := made.pop("contentSchema", None)) is not None:
        made["format"] = schema["$ref"]
        del made["contentMediaType"]
    return made


def _names(key: str, sub: Any, options: Mapping[str, Any]) -> Sequence[str]:
    named = options.get(sub["x-option"]) if isinstance(sub, dict) and "x-option" in sub else key
    return [] if named is None else [named] if isinstance(named, str) else named


def _applies(node: Any, options: Mapping[str, Any]) -> bool:
    if not isinstance(node, dict):
        return True
    return all(
        options.get(option) != value["not"] if isinstance(value, dict) and "not" in value else options.get(option) == value
        for option, value in node.get("x-when", {}).items()
    )


# Judging rows.


def _validator(whole: Mapping[str, Any], dotted: Sequence[str]) -> Callable[[Row], bool | None]:
    from jsonschema_rs import Draft202012Validator

    @lru_cache(64)
    def content(reference: str) -> Draft202012Validator:
        return Draft202012Validator({"$ref": reference, "$defs": whole["$defs"]}, validate_formats=True, formats=contents)

    contents: dict[str, Callable[..., bool]] = {reference: partial(_holds_json, content, reference) for reference in _references(whole)}
    validator = Draft202012Validator(dict(whole), validate_formats=True, formats=contents)

    def fits(row: Row) -> bool | None:
        lifted = _lifted(row, dotted) if dotted else row
        try:
            return validator.is_valid(lifted)
        except ValueError:
            pass
        try:
            return validator.is_valid(_as_json(lifted))
        except (ValueError, RecursionError):
            return None

    return fits


def _references(node: Any) -> set[str]:
    """Return the formats of a definition that are references: what must be in a text."""
    if isinstance(node, list):
        return set().union(*map(_references, node))
    if not isinstance(node, dict):
        return set()
    own = {node["format"]} if str(node.get("format", "")).startswith("#") else set()
    return own.union(*map(_references, node.values()))


@lru_cache(1024)
def parsed(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: it is not JSON, has a key twice, NaN or an infinity, or is nested too deep.
    """
    try:
        value = json.loads(text, object_pairs_hook=unique, parse_constant=no_number)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if text.count("[") + text.count("{") > DEPTH and depth_of(value) > DEPTH:
        raise ValueError("it is nested too deep")
    return value


def _holds_json(content: Callable[[str], Any], reference: str, text: str) -> bool:
    try:
        return bool(content(reference).is_valid(parsed(text)))
    except ValueError:
        return False


def _as_json(value: Any) -> Any:
    """Return a value of a table as JSON: what has no place there, such as a date, becomes an object that no definition accepts."""
    if isinstance(value, Mapping):
        return {str(key): _as_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(inner) for inner in value]
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    return value if value is None or isinstance(value, bool | int | float) else {"not JSON": type(value).__name__}


_SPEAKERS = ("role", "from")


def plain(value: Any) -> Any:
    """Return a value as a schema reads it: messages in columns as a list of them, text of a binary column as text."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    if isinstance(value, list):
        return [*map(plain, value)]
    if not isinstance(value, dict):
        return value
    columns = [each for each in value.values() if isinstance(each, list)]
    if len(columns) == len(value) and len({*map(len, columns)}) == 1 and any(name in value for name in _SPEAKERS):
        rows = zip(*columns, strict=True)
        return [{key: plain(inner) for key, inner in zip(value, row, strict=True) if inner is not None} for row in rows]
    return {key: each if key == "bytes" else plain(each) for key, each in value.items()}


def _lifted(row: Row, paths: Sequence[str]) -> Row:
    """Return a row with the values at dotted paths under the whole path, as an option names them; of an array of objects, the array of their values."""
    lifted = dict(row)
    for path in paths:
        if lifted.get(path) is not None:
            continue
        *heads, last = path.split(".")
        value = _at(row, heads)
        listed = isinstance(value, list) and all(isinstance(each, Mapping) for each in value)
        if listed or (isinstance(value, Mapping) and last in value):
            lifted.pop(path, None)
            lifted = {**_without(lifted, path.split(".")), path: [each.get(last) for each in value] if listed else value[last]}
            left = lifted.get(heads[0])
            if all(map(_says_nothing, left if isinstance(left, list) else [left])):
                del lifted[heads[0]]
    return lifted


def _says_nothing(value: Any) -> bool:
    """Whether an object has nothing but neutral fields and fields without content."""
    return isinstance(value, Mapping) and all(inner in (None, "", [], {}) or _neutral().search(key) for key, inner in value.items())


@cache
def _neutral() -> re.Pattern[str]:
    [names] = definition_of("common")["$defs"]["neutral"]["patternProperties"]
    return re.compile(names)


def neutral_names() -> list[str]:
    """Return the names of fields that say nothing a model reads."""
    return re.findall(r"\w+", _neutral().pattern.removeprefix("(?i)"))


def without(row: Row, paths: Sequence[str]) -> Row:
    """Return a row without the fields at these paths, as `ignore` writes them: without positions in arrays, ``*`` for any key."""
    for path in paths:
        row = _without(row, path.split("."))
    return row


def read_by(format: Format, row: Row, used: Sequence[str]) -> Row:
    """Return a row without fields that only choose rows: a schema may leave them unread. One that decides what is trained may only be 1 or true."""
    if not used or format.of(row) is not False:
        return row
    return without(row, [path for path in used if path.rpartition(".")[2] not in DECISIVE or _at(row, path.split(".")) == 1])


def _at(value: Any, parts: Sequence[str]) -> Any:
    for part in parts:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


DECISIVE = frozenset(
    (
        *("images", "image", "videos", "video", "audios", "audio", "reasoning_content", "reasoning", "thinking", "thought", "tool_plan"),
        *("Complex_CoT", "reasoning_details", "tool_calls", "function_call", "function_calls", "tools", "functions", "available_tools"),
        *("chat_template_kwargs", "documents", "system", "label", "kto_tag", "loss_weight", "weight", "loss_mask", "train", "training"),
        *("loss_scale", "train_detail", "training_detail", "rejected_response", "rejected_messages", "loss", "history", "input"),
        *("context", "margin", "refusal", "prefix"),
    )
)
"""Names of fields that decide what is trained or asked."""


def _without(value: Any, parts: Sequence[str]) -> Any:
    if isinstance(value, list):
        return [_without(each, parts) for each in value]
    if not isinstance(value, Mapping):
        return value
    for size in range(len(parts), 0, -1):  # a key may have dots
        head, rest = ".".join(parts[:size]), parts[size:]
        if head in value or head == "*":
            return {key: _without(inner, rest) if head in (key, "*") else inner for key, inner in value.items() if rest or key != head}
    return value
