"""`export`: write a store in a trainer's format, whole or not at all."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from prep_assets.config.base import MOST
from prep_assets.errors import ConfigError, nearest
from prep_assets.exports.readable import Options, Readable, Source, has_unattended, open_source
from prep_assets.stores.folders import whole_folder
from prep_assets.stores.manifest import MANIFEST, Manifest
from prep_assets.stores.packed import PackedStore
from prep_assets.stores.tokens import TokenStore
from prep_assets.stores.version_folders import Published
from prep_assets.text.documents import STARTS

Progress = Callable[[int, int], None]
"""Told how many rows are written, and how many there are."""
Write = TypeVar("Write", bound=Callable[..., None])
Only = Mapping[str, Callable[[type, Mapping[str, Any]], bool]]
"""Option → whether it means something for a kind of source, beside the format's other options; an option that is not here always does."""


Read = Callable[[Path, Source, Options], Readable]
"""Opens the files of a format again. It shares no code with what wrote them."""


@dataclass(frozen=True, slots=True)
class Export:
    """A registered format.

    Attributes:
        takes: which kinds of source it can write.
        write: called with the source, an empty folder, a `Progress` and the options.
        read_by: the trainers that read it.
        opens: the lines that open an export there, by ``[<layout>] [<kind of source>]``; the most precise that fits is used. Placeholders are
            the options and what `opening` adds.
        options: names and defaults of its options.
        readers: who reads one layout or kind of source, keyed as `opens`, where that is not all of `read_by`.
        images: whether it can say which images stand where.
        attention: whether it can say which tokens are not attended.
        keeps_borders: whether its files say where documents of a token stream end, whatever their ids are.
        only: which options mean something for some sources only.
        keeps_mask: whether a token stream keeps its loss mask, with these options.
        kind: of its files, for the web UI.
    """

    name: str
    takes: tuple[type, ...]
    write: Callable[..., None]
    read_by: str
    opens: Mapping[str, tuple[str, ...]]
    options: Mapping[str, inspect.Parameter] = field(default_factory=dict)
    readers: Mapping[str, str] = field(default_factory=dict)
    images: bool = False
    attention: bool = False
    only: Only = field(default_factory=dict)
    keeps_borders: bool = True
    keeps_mask: Callable[[Mapping[str, Any]], bool] = lambda options: True
    kind: str = "numpy"

    def means(self, option: str, kind: type, options: Mapping[str, Any]) -> bool:
        """Whether an option means something for a source of this kind, beside these options."""
        filled = {**{name: parameter.default for name, parameter in self.options.items()}, **options}
        return option not in self.only or self.only[option](kind, filled)

    @property
    def types(self) -> dict[str, Any]:
        """The type of each option, with its bounds."""
        return get_type_hints(self.write, include_extras=True)

    @property
    def summary(self) -> str:
        """First line of its docstring."""
        return (inspect.getdoc(self.write) or "").split("\n", 1)[0]


_EXPORTS: dict[str, Export] = {}
_READERS: dict[str, Read] = {}


def exporter(name: str, *takes: type, **more: Any) -> Callable[[Write], Write]:
    """Register ``write(source, out, progress, *, option=default, …)`` as the format `name`. `takes` and `more` as in `Export`."""

    def register(write: Write) -> Write:
        parameters = inspect.signature(write).parameters.values()
        options = {parameter.name: parameter for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY}
        _EXPORTS[name] = Export(name, takes, write, options=options, **more)
        return write

    return register


def reads(name: str) -> Callable[[Read], Read]:
    """Register ``read(folder, source, options)`` as what opens the files of the format `name` again."""

    def register(read: Read) -> Read:
        return _READERS.setdefault(name, read)

    return register


@cache
def exports() -> dict[str, Export]:
    """Every format by name, sorted: the files beside this one register them when they are imported."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"prep_assets.exports.{module.name}")
    return dict(sorted(_EXPORTS.items()))


def export_named(format: str) -> Export:
    """The format called `format`.

    Raises:
        ConfigError: there is none; the message names the nearest.
    """
    if format not in (known := exports()):
        raise ConfigError(f"no export format {format!r}{nearest(format, known) or '.'} Known: {', '.join(known)}")
    return known[format]


def reader(format: str) -> Read:
    """What opens the files of a format again."""
    return _READERS[export_named(format).name]


_TRL_TRAINERS: Mapping[str, str] = {
    "unpaired": "KTOTrainer(model=model",
    "rl_prompts": "GRPOTrainer(model=model, reward_funcs=reward",
    "arithmetic_prompts": "GRPOTrainer(model=model, reward_funcs=reward",
}
"""TRL's trainer for a JSONL file, by how its name starts; `DPOTrainer` for any other."""


def opening(format: str, folder: Path, source: object, options: Mapping[str, Any]) -> tuple[str, str]:
    """Who reads the export in `folder`, and the lines that open it there.

    Args:
        source: what was exported.
        options: every option that it was exported with.
    """
    target = export_named(format)
    kind, layout = type(source).__name__, options.get("layout") or ""
    keys = [*([f"{layout} {kind}", layout] if layout else []), kind, ""]
    row_len = getattr(source, "row_len", 2048)
    stem = {"PackedStore": "sft_packed", "TokenStore": "pile_train"}.get(kind) or Path(getattr(source, "path", "")).stem
    more = {
        "trl_trainer": next((call for start, call in _TRL_TRAINERS.items() if stem.startswith(start)), "DPOTrainer(model=model"),
        "folder": folder.as_posix(),
        "level": "sentence" if STARTS in getattr(source, "arrays", {}) else "document",
        "row_len": row_len,
        "neat_len": row_len + 1,
        "neat_pack": " --neat-pack" if options.get("neat") else "",
        "file": options.get("name") or stem,
    }
    lines = next(target.opens[key] for key in keys if key in target.opens)
    trainer = next((target.readers[key] for key in keys if key in target.readers), target.read_by)
    return trainer, "\n".join(lines).format(**{**options, **more})


def export(
    source: Published | Path | str | Source,
    format: str,
    out_dir: Path | str,
    *,
    stream: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Path:
    """Write `source` in `format` to `out_dir`, and return that folder.

    The files are written beside it and renamed into place at the end, so a run that dies leaves no folder that could be read. Equal
    sources and options give equal bytes.

    Args:
        source: an opened store, or the folder of one, e.g. ``stores/sft_packed/current``.
        format: one of `exports`.
        stream: which stream of the folder, where it has several.
        options: of the format; see its page in ``docs/formats``.

    Raises:
        ConfigError: no such format or option; a source that the format cannot hold; an `out_dir` that is not empty, that
            cannot be made, or that another export is writing.
        StoreError: the source is not a store.
    """
    target = export_named(format)
    check_options(target, options)
    check_folder(Path(out_dir))
    check_borders(target, _recipe(source))
    opened = open_source(source, stream) if isinstance(source, Published | Path | str) else source
    check_meaning(target, type(opened), options)
    if not isinstance(opened, target.takes):
        takes = ", ".join(kind.__name__ for kind in target.takes)
        raise ConfigError(f"export {format!r} writes {takes}; this is a {type(opened).__name__}")
    _check_images_and_attention(target, opened)
    if not len(opened):
        raise ConfigError("nothing to export: the source has no rows")
    out = Path(out_dir)
    whole(out, lambda folder: target.write(opened, folder, progress or _untold, **options))
    return out


def _untold(done: int, total: int) -> None:
    """The progress of a writer that nobody waits for."""


def check_borders(target: Export, recipe: Mapping[str, Any]) -> None:
    """Raises:
    ConfigError: the documents of a store have no end-of-text token, and the format keeps nothing else that tells them apart.
    """
    if recipe.get("append_eod") is False and not target.keeps_borders:
        able = _able(lambda other: other.keeps_borders and TokenStore in other.takes)
        raise ConfigError(
            f"export {target.name!r} tells documents apart by the end-of-text token alone, which these lack (append_eod: false): they would be "
            f"one text. Set append_eod: true, or use a format that keeps borders: {able}"
        )


def _recipe(source: Published | Path | str | Source) -> Mapping[str, Any]:
    """What a store was made from, where the source is one that says so."""
    if isinstance(source, Published):
        return source.manifest.recipe
    return Manifest.read(Path(source)).recipe if isinstance(source, Path | str) and (Path(source) / MANIFEST).is_file() else {}


def _check_images_and_attention(target: Export, source: Source) -> None:
    """Raises:
    ConfigError: the format has no place for the images of the source, or for which of its tokens are attended.
    """
    count = len(source.images) if isinstance(source, TokenStore | PackedStore) else 0
    if count and not target.images:
        raise ConfigError(
            f"export {target.name!r} would lose {count:,} images: it has no place for their paths, and their tokens would be left without meaning. "
            f"Formats with images: {_able(lambda other: other.images)}"
        )
    if has_unattended(source) and not target.attention:
        raise ConfigError(
            f"export {target.name!r} cannot say which tokens are not attended, so a model would attend to all of them. Formats that can: "
            f"{_able(lambda other: other.attention)}"
        )


def _able(can: Callable[[Export], bool]) -> str:
    return ", ".join(name for name, candidate in exports().items() if can(candidate))


def check_meaning(target: Export, kind: type, options: Mapping[str, Any]) -> None:
    """Raises:
    ConfigError: an option other than its default that the format does not read for this kind of source.
    """
    for name, value in options.items():
        if value != target.options[name].default and not target.means(name, kind, options):
            others = ", ".join(f"{other} = {given!r}" for other, given in options.items() if other != name) or "these options"
            raise ConfigError(
                f"export {target.name!r}, option {name!r} = {value!r} means nothing for a {kind.__name__} with {others}. Leave it out"
            )


def check_options(target: Export, options: Mapping[str, Any]) -> None:
    """Raises:
    ConfigError: an option that the format does not have, one of the wrong type, or a missing one; the message names the nearest.
    """
    hints = target.types if options else {}
    for name, value in options.items():
        if name not in target.options:
            allowed = ", ".join(target.options) or "none"
            raise ConfigError(f"export {target.name!r} has no option {name!r}{nearest(name, target.options) or '.'} Allowed: {allowed}")
        try:
            TypeAdapter(hints[name]).validate_python(value, strict=True)
        except ValidationError as error:
            raise ConfigError(f"export {target.name!r}, option {name!r} = {value!r}: {error.errors()[0]['msg']}") from error
    missing = [name for name, option in target.options.items() if option.default is inspect.Parameter.empty and name not in options]
    if missing:
        raise ConfigError(f"export {target.name!r} needs the option {missing[0]!r}: {get_type_hints(target.write)[missing[0]]}")


def check_folder(out: Path) -> None:
    """Raises:
    ConfigError: an export cannot stand at `out`; the message says why.
    """
    place = out.resolve()
    if place == Path.cwd():
        raise ConfigError(
            f"cannot export to {str(out)!r}: it is the current folder, and an export puts a new one in place. Name another folder"
        )
    above = next(path for path in (place, *place.parents) if path.exists() or path.is_symlink())
    if not above.is_dir():
        what = "is a file" if above == place else f"is below {above}, which is a file"
        raise ConfigError(f"cannot export to {out}: it {what}, and an export is a folder. Name another folder")
    if above == place and any(place.iterdir()):
        raise ConfigError(f"{out} is not empty: an export never mixes with what is there. Remove it, or name another folder")


def whole(out: Path, write: Callable[[Path], None]) -> None:
    """Have a folder written beside `out`, synced to disk and renamed.

    Raises:
        ConfigError: another export to it is under way, or the folder above cannot be written to.
    """
    place = out.resolve()
    busy = ConfigError(f"another export to {place} is under way. Wait until it ends, or name another folder")
    with whole_folder(place, lambda: check_folder(out), busy=busy) as work:
        write(work)


def _plain(name: str) -> str:
    if name in ("", ".", "..") or any(character in name for character in "/\\\0"):
        raise PydanticCustomError("file_name", "must be the name of a file in the export's folder: not empty, without / and \\")
    return name


def _split(name: str) -> str:
    if re.fullmatch(r"\w+", name) is None:
        raise PydanticCustomError("split_name", "must be the name of a split: letters, digits and _")
    return name


Count = Annotated[int, Field(ge=1, le=MOST)]
"""A number of rows, tokens or bytes, at least 1."""
Size = Annotated[int, Field(ge=1, le=2**32 - 1)]
"""Bytes of a file that says in 32 bits where its parts begin, and is put together in memory."""
TokenId = Annotated[int, Field(ge=0, lt=1 << 31)]
"""A token id, which every format holds in int32 or less."""
FileName = Annotated[str, AfterValidator(_plain)]
"""A name that stays in the folder of the export."""
Split = Annotated[str, AfterValidator(_split)]
"""A split's name, as Hugging Face `datasets` accepts it."""
