"""YAML files and tombstones → frozen models, or an error that names the file, the key, what is allowed there and the nearest match."""

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

try:  # written in C: a thousand domains are read in a tenth of the time
    from yaml import CSafeLoader as _Loader
except ImportError:
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

# YAML file → frozen model, or an error that names the file, the key, what is allowed there and the nearest match.

PACKAGE = Path(__file__).resolve().parent.parent


def config_dir() -> Path:
    """Where the configuration is: ``PREP_ASSETS_CONFIG_DIR``, else the checkout's ``configs/``, else ``./configs``, else the shipped sample."""
    named = os.environ.get("PREP_ASSETS_CONFIG_DIR")
    if named:
        folder = Path(named).expanduser().resolve()
        if not folder.is_dir():
            raise ConfigError(f"PREP_ASSETS_CONFIG_DIR is {named!r}, which is not a directory")
        return folder
    root = checkout()
    candidates = [*([root / "configs"] if root else []), Path.cwd() / "configs", PACKAGE / "_configs"]
    return next((folder for folder in candidates if folder.is_dir()), candidates[-1])


def store_dir() -> Path | str:
    """Where stores are: ``PREP_ASSETS_STORE_DIR``, a folder or the address of a bucket, else ``data/stores`` in the checkout, else
    ``./data/stores``."""
    named = os.environ.get("PREP_ASSETS_STORE_DIR")
    return located(named) if named else (checkout() or Path.cwd()) / "data" / "stores"


def located(stores: str, base: Path | None = None) -> Path | str:
    """A folder of stores, seen from `base`; the address of a bucket as it is."""
    return stores if "://" in stores else ((base or Path.cwd()) / Path(stores).expanduser()).resolve()


def checkout() -> Path | None:
    """The root of the source checkout that this package runs from, or `None` where it is installed."""
    root = PACKAGE.parent
    return root if (root / "pyproject.toml").is_file() and (root / "configs").is_dir() else None


def load_family(name: str, folder: Path, over: Mapping[str, Any] | None = None) -> Family:
    """Read ``<folder>/<name>.yaml``, with options of one run instead of the file's.

    Raises:
        ConfigError: every fault of the file, each with its key path and remedy.
    """
    path = folder / f"{name}.yaml"
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError as error:
        there = ", ".join(each for each in FAMILIES if (folder / f"{each}.yaml").is_file())
        raise ConfigError(f"no configuration {path}. Write one (docs/configuration.md); the folder has {there or 'none'}") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: byte {error.start} is not UTF-8 ({error.reason}); save the file as UTF-8") from error
    loaded = _family(name, text, path)
    if not over:
        return loaded
    found: Family = parse(FAMILIES[name], _merged(loaded.model_dump(by_alias=True), over), f"{path} with this run's options")
    return found


def _in_words(error: Exception, text: str) -> str:
    """What a parser found, and where."""
    if (mark := getattr(error, "problem_mark", None)) is None:
        return str(error)
    tab = "\t" in "".join(text.splitlines()[mark.line : mark.line + 1])
    remedy = "Indent with spaces: YAML takes no tabs" if tab else "Look at the indentation, brackets and quotes there and above"
    return f"line {mark.line + 1}, column {mark.column + 1}: {getattr(error, 'problem', error)}. {remedy}"


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(base.get(key), Mapping)
        merged[key] = _merged(base[key], value) if both else value
    return merged


@bounded_cache("configurations", 64)
def _family(name: str, text: str, path: Path) -> Family:
    """The model of a file's text. It is frozen, so that everybody who asks for the same text can have the same one."""
    try:
        values = yaml.load(text, Loader=_UniqueKeys)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # the others: a date that does not exist, an anchor that holds itself
        raise ConfigError(f"{path} is not YAML: {_in_words(error, text)}") from error
    if not isinstance(values, Mapping):
        raise ConfigError(
            f"{path}: needs keys such as tokenizer and domains, {'it is empty' if values is None else f'found {values!r:.80}'}"
        )
    family: Family = parse(FAMILIES[name], values, str(path))
    return family


def parse(model: type[Any], values: Mapping[str, Any], where: str) -> Any:
    """Validate `values` as `model`; `where` names them in errors."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        own = [fault for fault in error.errors() if not _follows(fault)]
        faults = "\n".join(f"  {_fault(model, *group)}" for _, group in groupby(own, _place))
        raise ConfigError(f"{where}:\n{faults}") from error


class _UniqueKeys(_Loader):
    """YAML silently keeps the last of two equal keys; a domain that is listed twice must not vanish."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: list[Any] = []
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":  # `<<: *anchor`, whose keys may be overridden
                continue
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.YAMLError(f"key {key!r} stands twice (line {key_node.start_mark.line + 1})")
            seen.append(key)
        return super().construct_mapping(node, deep)


def _follows(fault: Any) -> bool:
    """Whether a fault only follows from others: a list is called too short when what it holds is faulty."""
    return fault["type"] == "too_short" and bool(fault["input"])


def _place(fault: Any) -> str:
    """The path of an option, without the names that pydantic gives to the types that may stand there."""
    return ".".join(part for part in map(str, fault["loc"]) if not re.fullmatch(r"\[key\]|constrained-\w+|literal\[.*\]", part))


_IN_WORDS = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "needs a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "needs a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "needs true or false"),
    "string_type": "needs a text",
    "too_short": "needs at least one entry",
}
"""Of what pydantic says in words of Python; a type that may stand there is named, and what is wrong with the value is seen."""


def _fault(model: type[BaseModel], fault: Any, *others: Any) -> str:
    """What is wrong in one place. `others` say the same of the other types that may stand there."""
    path = _place(fault)
    if fault["type"] == "extra_forbidden":
        allowed, key = _allowed(model, fault["loc"][:-1]), str(fault["loc"][-1])
        owners = [f"{name}.yaml" for name, other in FAMILIES.items() if key in _allowed(other, fault["loc"][:-1])]
        elsewhere = f"; it is an option of {', '.join(owners)}" if owners and issubclass(model, Family) else ""
        return f"{path}: unknown key{elsewhere or nearest(key, allowed) or '; allowed here: ' + ', '.join(allowed)}"
    if fault["type"] == "missing":
        return f"{path}: missing"
    if fault["type"] == "model_type":
        return f"{path}: needs keys below it (found {fault['input']!r:.80})"
    if fault["type"] == "tuple_type":
        example = f": [{fault['input']}]" if isinstance(fault["input"], str) else ""
        return f"{path}: needs a list{example} (found {fault['input']!r:.80})"
    message: str = _IN_WORDS.get(fault["type"]) or fault["msg"].removeprefix("Value error, ")
    if not path:  # about the family as a whole: each line begins with the path of its option
        return message
    message = ", or ".join([message, *(each["ctx"]["expected"] for each in others if each["type"] == "literal_error")])
    words = re.findall(r"'([^']+)'", fault["ctx"]["expected"]) if fault["type"] == "literal_error" else ()
    return f"{path}: {message} (found {fault['input']!r:.80}){nearest(str(fault['input']), words)}"


def _allowed(model: type[BaseModel], path: tuple[Any, ...]) -> list[str]:
    """The keys that the model at `path` takes."""
    found = [model]
    for part in path:
        field = next((f for name, f in model.model_fields.items() if part in (name, f.alias)), None)
        if field is not None:
            found = list(_models(field.annotation)) or [model]
        elif (chosen := next((each for each in found if _rule_of(each) == part), None)) is not None:
            found = [chosen]
        model = found[0]
    return [field.alias or name for name, field in model.model_fields.items()]


def _rule_of(model: type[BaseModel]) -> str | None:
    """The word that chooses a model among those that may stand in one place."""
    rule = model.model_fields.get("rule")
    return next(iter(get_args(rule.annotation)), None) if rule is not None else None


def _models(hint: Any) -> Iterator[type[BaseModel]]:
    """The models in an annotation such as ``dict[str, Domain] | None``."""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint
    for each in get_args(hint):
        yield from _models(each)


# Tombstones: rows that must never be used again, whatever is fetched or built. ``forgotten.jsonl`` in the configuration folder, one a line:
#
#     {"family": "sft", "domain": "gsm8k", "record": "gsm8k.jsonl:17", "digest": "…", "reason": "…"}
#
# The digest is that of the row's content, so a row stays forgotten when it moves in its file, and when its file is fetched again. It says nothing of what the
# row said.

FILE = "forgotten.jsonl"
F = TypeVar("F", bound=Family)
_SORTED = msgspec.json.Encoder(order="sorted")


class Tombstone(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row that is forgotten.

    Attributes:
        family, domain: where it is forgotten.
        record: its id when it was.
        digest: see `payload_digest`.
        reason: why, for people.
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
        ConfigError: a line is not a tombstone. Rows that must stay forgotten must not come back because of a typing error.
    """
    path = folder / FILE
    if not path.is_file():
        return ()
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            found += [msgspec.convert(loads(line), Tombstone)] if line.strip() else []
        except (msgspec.ValidationError, ValueError) as error:
            raise ConfigError(f"{path}, line {number}: {error}. Fix the line; it keeps a row out of every store") from error
    return tuple(found)


def add_tombstones(folder: Path, tombstones: Iterable[Tombstone]) -> tuple[Tombstone, ...]:
    """Write those that are not there yet, in one step, and return them."""
    there = read_tombstones(folder)
    existing = {(each.family, each.domain, each.digest) for each in there}
    new = tuple(each for each in tombstones if (each.family, each.domain, each.digest) not in existing)
    if new:
        path = (folder / FILE).resolve()  # the configurations of a component share one
        work = path.with_name(f".{FILE}-new")
        work.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in (*there, *new)))
        work.replace(path)
    return new


def with_tombstones(family: F, name: str, folder: Path) -> F:
    """The family's configuration with what each of its domains must leave out."""
    own = [each for each in read_tombstones(folder) if each.family == name]
    if not own:
        return family
    digests = {domain: frozenset(each.digest for each in own if each.domain == domain) for domain in family.domains}
    return family.model_copy(update={"domains": {key: domain.forgetting(digests[key]) for key, domain in family.domains.items()}})
