"""Load YAML files and tombstones as frozen models; errors name the file, the key, the allowed values and the nearest match."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec
import yaml
from pydantic import BaseModel, ValidationError

from prep_assets.caches import bounded_cache
from prep_assets.config.family import Family
from prep_assets.config.models import FAMILIES
from prep_assets.errors import ConfigError, nearest
from prep_assets.stores.files import loads

try:  # the parser in C reads a thousand domains in a tenth of the time
    from yaml import CSafeLoader as _Loader
except ImportError:
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

# YAML files.

PACKAGE = Path(__file__).resolve().parent.parent
VARIANT = "PREP_ASSETS_VARIANT"
"""The variable that names a variant: ``FAMILY.VARIANT.yaml`` is merged over ``FAMILY.yaml``, and stores are in a folder of that name."""


def variant_of(folder: Path) -> str:
    """The variant that the environment names, or an empty string.

    Raises:
        ConfigError: the configuration folder has no file of it.
    """
    name = os.environ.get(VARIANT, "")
    if name and not any((folder / f"{family}.{name}.yaml").is_file() for family in FAMILIES):
        known = sorted({path.name.split(".")[1] for family in FAMILIES for path in folder.glob(f"{family}.*.yaml")})
        instead = f"{nearest(name, known) or '.'} Variants there: {', '.join(known) or 'none'}"
        raise ConfigError(f"{VARIANT} is {name!r}, and {folder} has no FAMILY.{name}.yaml, such as sft.{name}.yaml{instead}")
    return name


def config_dir() -> Path:
    """The configuration folder: ``PREP_ASSETS_CONFIG_DIR``, else the checkout's ``configs/``, else ``./configs``, else the shipped sample."""
    variable = os.environ.get("PREP_ASSETS_CONFIG_DIR")
    if variable:
        folder = Path(variable).expanduser().resolve()
        if not folder.is_dir():
            raise ConfigError(f"PREP_ASSETS_CONFIG_DIR is {variable!r}, which is not a directory")
    else:
        root = checkout()
        candidates = [*([root / "configs"] if root else []), Path.cwd() / "configs", PACKAGE / "_configs"]
        folder = next((folder for folder in candidates if folder.is_dir()), candidates[-1])
    variant_of(folder)
    return folder


def store_dir() -> Path | str:
    """The location of stores: ``PREP_ASSETS_STORE_DIR``, a folder or the address of a bucket, else ``data/stores`` in the checkout, else
    ``./data/stores``; with ``-VARIANT`` behind it, if the environment names one."""
    variable = os.environ.get("PREP_ASSETS_STORE_DIR", "").rstrip("/")
    stores = located(variable) if variable else (checkout() or Path.cwd()) / "data" / "stores"
    variant = os.environ.get(VARIANT)
    return located(f"{stores}-{variant}") if variant else stores


def located(stores: str, base: Path | None = None) -> Path | str:
    """The absolute path of a folder of stores, relative to `base`; the address of a bucket unchanged."""
    return stores if "://" in stores else ((base or Path.cwd()) / Path(stores).expanduser()).resolve()


def checkout() -> Path | None:
    """The root of the source checkout that this package runs from; `None` if it is installed."""
    root = PACKAGE.parent
    return root if (root / "pyproject.toml").is_file() and (root / "configs").is_dir() else None


def load_family(name: str, folder: Path, overrides: Mapping[str, Any] | None = None) -> Family:
    """Read ``<folder>/<name>.yaml``, with its variant and `overrides` of one run merged over the file's options.

    Raises:
        ConfigError: all faults of the files, each with its key path and remedy.
    """
    path = folder / f"{name}.yaml"
    variant = folder / f"{name}.{os.environ.get(VARIANT)}.yaml"
    try:
        texts = [(path, _read(path)), *([(variant, _read(variant))] if variant.is_file() else [])]
    except FileNotFoundError as error:
        existing = ", ".join(family for family in FAMILIES if (folder / f"{family}.yaml").is_file())
        raise ConfigError(f"no configuration {path}. Write one (docs/configuration.md); the folder has {existing or 'none'}") from error
    loaded = _parse_family(name, tuple(texts))
    if not overrides:
        return loaded
    family_model: Family = parse(FAMILIES[name], _merge(loaded.model_dump(by_alias=True), overrides), f"{path} with this run's options")
    return family_model


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8 ({error.reason}); save the file as UTF-8") from error


def _parser_message(error: Exception, text: str) -> str:
    """The fault that the YAML parser found, with its line, column and remedy."""
    if (mark := getattr(error, "problem_mark", None)) is None:
        return str(error)
    tab = "\t" in "".join(text.splitlines()[mark.line : mark.line + 1])
    remedy = "Indent with spaces: YAML takes no tabs" if tab else "Look at the indentation, brackets and quotes there and above"
    return f"line {mark.line + 1}, column {mark.column + 1}: {getattr(error, 'problem', error)}. {remedy}"


def _merge(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in overrides.items():
        are_mappings = isinstance(value, Mapping) and isinstance(base.get(key), Mapping)
        merged[key] = _merge(base[key], value) if are_mappings else value
    return merged


DEEPEST = 100
"""Levels of a configuration's values, as many as JSON of strangers may have."""
MOST_REPEATED = 100_000
"""Values that aliases of a YAML file may repeat; a hundred characters of a text count as one."""


@bounded_cache("configurations", 64)
def _parse_family(name: str, texts: tuple[tuple[Path, str], ...]) -> Family:
    """The model of a file's text, or of a file and its variant. It is frozen, so callers with the same texts share one."""
    values: Mapping[str, Any] = {}
    for path, text in texts:
        values = _merge(values, yaml_values(text, path))
    family: Family = parse(FAMILIES[name], values, " with ".join([str(texts[0][0]), *(path.name for path, _ in texts[1:])]))
    return family


def read_yaml(text: str) -> Any:
    """The value of YAML text.

    Raises:
        yaml.YAMLError: as `require_bounded`.
        ValueError: a date that does not exist.
    """
    require_bounded(text)
    return yaml.load(text, Loader=_Loader)


def yaml_values(text: str, path: Path) -> Mapping[str, Any]:
    """The keys and values of a YAML file.

    Raises:
        ConfigError: it is not YAML, has a key twice, or no keys.
    """
    try:
        require_bounded(text)
        values = yaml.load(text, Loader=_UniqueKeys)
    except (
        yaml.YAMLError,
        ValueError,
        RecursionError,
    ) as error:  # ValueError: a date that does not exist; RecursionError: an anchor that contains itself
        raise ConfigError(f"{path} is not YAML: {_parser_message(error, text)}") from error
    if not isinstance(values, Mapping):
        raise ConfigError(
            f"{path}: needs keys such as tokenizer and domains, {'it is empty' if values is None else f'found {values!r:.80}'}"
        )
    return values


def require_bounded(text: str) -> None:
    """Check YAML before it is loaded: the loader, which is C, recurses into values until its stack ends with the process, and few aliases of aliases are
    more values than memory holds.

    Raises:
        yaml.YAMLError: values nested deeper than `DEEPEST`, aliases that repeat more than `MOST_REPEATED`, or a syntax error.
    """
    anchors, repeated = dict[str, int](), 0
    sizes: list[tuple[str | None, int]] = [(None, 0)]  # anchor and size of each open collection
    for event in yaml.parse(text, Loader=_Loader):
        line = event.start_mark.line + 1 if event.start_mark else "?"
        anchor = getattr(event, "anchor", None)
        if isinstance(event, yaml.CollectionStartEvent):
            sizes.append((anchor, 0))
            if len(sizes) > DEEPEST + 1:
                raise yaml.YAMLError(f"line {line} is nested more than {DEEPEST} deep")
            continue
        if isinstance(event, yaml.AliasEvent):
            size = anchors.get(str(event.anchor), 0)
            repeated += size
            if repeated > MOST_REPEATED:
                raise yaml.YAMLError(
                    f"the aliases up to line {line} (*{event.anchor}) repeat more than {MOST_REPEATED:,} values. Write fewer of them"
                )
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, size = sizes.pop()
        elif isinstance(event, yaml.ScalarEvent):
            size = 1 + len(event.value) // 100
        else:
            continue
        if anchor is not None and not isinstance(event, yaml.AliasEvent):
            anchors[anchor] = size + 1
        sizes[-1] = (sizes[-1][0], sizes[-1][1] + size + 1)


def parse(model: type[Any], values: Mapping[str, Any], where: str) -> Any:
    """Validate `values` as `model`; `where` names their source in errors."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        primary = [fault for fault in error.errors() if not _is_consequence(fault)]
        faults = "\n".join(f"  {_fault_message(model, *group)}" for _, group in groupby(primary, _option_path))
        raise ConfigError(f"{where}:\n{faults}") from error


class _UniqueKeys(_Loader):
    """Rejects repeated keys, of which YAML silently keeps the last: a domain that is listed twice must not vanish."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: list[Any] = []
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":  # `<<: *anchor`, whose keys may be overridden
                continue
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.YAMLError(f"key {key!r} is repeated (line {key_node.start_mark.line + 1})")
            seen.append(key)
        return super().construct_mapping(node, deep)


def _is_consequence(fault: Any) -> bool:
    """Whether a fault only follows from others: pydantic calls a list too short if its elements are faulty."""
    return fault["type"] == "too_short" and bool(fault["input"])


def _option_path(fault: Any) -> str:
    """The path of the faulty option, without pydantic's names of the alternative types."""
    return ".".join(part for part in map(str, fault["loc"]) if not re.fullmatch(r"\[key\]|constrained-\w+|literal\[.*\]", part))


_MESSAGES = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "needs a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "needs a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "needs true or false"),
    "string_type": "needs a text",
    "too_short": "needs at least one entry",
}
"""Type of a pydantic error → a message in terms of YAML, for messages in terms of Python."""


def _fault_message(model: type[BaseModel], fault: Any, *alternatives: Any) -> str:
    """The message for the faults at one path. `alternatives` are the faults for the other types that are allowed at this path."""
    path = _option_path(fault)
    if fault["type"] == "extra_forbidden":
        allowed, key = _allowed_keys(model, fault["loc"][:-1]), str(fault["loc"][-1])
        owners = [f"{name}.yaml" for name, family in FAMILIES.items() if key in _allowed_keys(family, fault["loc"][:-1])]
        elsewhere = f"; it is an option of {', '.join(owners)}" if owners and issubclass(model, Family) else ""
        return f"{path}: unknown key{elsewhere or nearest(key, allowed) or '; allowed here: ' + ', '.join(allowed)}"
    if fault["type"] == "missing":
        return f"{path}: missing"
    if fault["type"] == "model_type":
        return f"{path}: needs keys below it (found {fault['input']!r:.80})"
    if fault["type"] == "tuple_type":
        example = f": [{fault['input']}]" if isinstance(fault["input"], str) else ""
        return f"{path}: needs a list{example} (found {fault['input']!r:.80})"
    message: str = _MESSAGES.get(fault["type"]) or fault["msg"].removeprefix("Value error, ")
    if not path:  # faults of the whole family: each line begins with the path of its option
        return message
    message = ", or ".join(
        [message, *(alternative["ctx"]["expected"] for alternative in alternatives if alternative["type"] == "literal_error")]
    )
    words = re.findall(r"'([^']+)'", fault["ctx"]["expected"]) if fault["type"] == "literal_error" else ()
    return f"{path}: {message} (found {fault['input']!r:.80}){nearest(str(fault['input']), words)}"


def _allowed_keys(model: type[BaseModel], path: tuple[Any, ...]) -> list[str]:
    """The keys of the model at `path`."""
    models = [model]
    for key in path:
        field = next((candidate for name, candidate in model.model_fields.items() if key in (name, candidate.alias)), None)
        if field is not None:
            models = list(_models_in(field.annotation)) or [model]
        elif (named := next((option for option in models if _rule_name(option) == key), None)) is not None:
            models = [named]
        model = models[0]
    return [field.alias or name for name, field in model.model_fields.items()]


def _rule_name(model: type[BaseModel]) -> str | None:
    """The value of `rule` that selects a model in a union."""
    rule = model.model_fields.get("rule")
    return next(iter(get_args(rule.annotation)), None) if rule is not None else None


def _models_in(hint: Any) -> Iterator[type[BaseModel]]:
    """The models in an annotation such as ``dict[str, Domain] | None``."""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint
    for argument in get_args(hint):
        yield from _models_in(argument)


# Tombstones: rows that must never be used again, whatever is fetched or built. One a line in ``forgotten.jsonl`` of the configuration folder:
#
#     {"family": "sft", "domain": "gsm8k", "record": "gsm8k.jsonl:17", "digest": "…", "reason": "…"}
#
# The digest is of the row's content, so a row stays forgotten when it moves in its file, and when its file is fetched again. It does not reveal the content.

FILE = "forgotten.jsonl"
F = TypeVar("F", bound=Family)
_SORTED = msgspec.json.Encoder(order="sorted")


class Tombstone(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One forgotten row.

    Attributes:
        family, domain: the domain from which it is removed.
        record: its id at the time of removal, counted from 1; in lines of 0.2 from 0.
        digest: see `payload_digest`.
        reason: the reason, for people.
    """

    family: str
    domain: str
    record: str
    digest: str
    reason: str = ""


def payload_digest(payload: Any) -> str:
    """sha256 of a row as JSON with sorted keys, in hex."""
    return hashlib.sha256(_SORTED.encode(payload)).hexdigest()


def read_tombstones(folder: Path) -> tuple[Tombstone, ...]:
    """The tombstones of a configuration folder.

    Raises:
        ConfigError: a line is not a tombstone. A typo must not bring back a forgotten row.
    """
    path = folder / FILE
    if not path.is_file():
        return ()
    tombstones = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            tombstones += [msgspec.convert(loads(line), Tombstone)] if line.strip() else []
        except (msgspec.ValidationError, ValueError) as error:
            raise ConfigError(f"{path}, line {number}: {error}. Fix the line; it keeps a row out of every store") from error
    return tuple(tombstones)


def add_tombstones(folder: Path, tombstones: Iterable[Tombstone]) -> tuple[Tombstone, ...]:
    """Add those that are not in the file yet, atomically, and return them."""
    stored = read_tombstones(folder)
    existing = {(tombstone.family, tombstone.domain, tombstone.digest) for tombstone in stored}
    new = tuple(tombstone for tombstone in tombstones if (tombstone.family, tombstone.domain, tombstone.digest) not in existing)
    if new:
        path = (folder / FILE).resolve()  # the configurations of a component share one
        temporary = path.with_name(f".{FILE}-new")
        temporary.write_bytes(b"".join(msgspec.json.encode(tombstone) + b"\n" for tombstone in (*stored, *new)))
        temporary.replace(path)
    return new


def with_tombstones(family: F, name: str, folder: Path) -> F:
    """The family's configuration, with the digests of forgotten rows in each domain."""
    tombstones = [tombstone for tombstone in read_tombstones(folder) if tombstone.family == name]
    if not tombstones:
        return family
    digests = {domain: frozenset(tombstone.digest for tombstone in tombstones if tombstone.domain == domain) for domain in family.domains}
    return family.model_copy(update={"domains": {key: domain.forgetting(digests[key]) for key, domain in family.domains.items()}})
