"""The registry of export formats, and `export`, which writes a store in one of them atomically."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_type_hints

from msgspec import Struct, field
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from prep_assets import plugins
from prep_assets.config.base import MOST
from prep_assets.errors import ConfigError, require_known
from prep_assets.extensions.exports.readable import Options, Readable
from prep_assets.schemas.registry import check_options
from prep_assets.stores.lists import declared
from prep_assets.stores.manifest import MANIFEST, Manifest
from prep_assets.stores.shards import STARTS
from prep_assets.stores.table import MARGIN, TOKENS, Schema, Table, open_table
from prep_assets.stores.verification import whole_folder
from prep_assets.stores.version_folders import Published

Progress = Callable[[int, int], None]
"""Called with the rows written so far and the rows in total."""
Write = TypeVar("Write", bound=Callable[..., None])
Only = Mapping[str, Callable[[Schema, Mapping[str, Any]], bool]]
"""Option → whether it applies to tables of a schema, given all options. Options that are not listed always apply."""


Read = Callable[[Path, Table, Options], Readable]
"""Opens an export; shares no code with the function that wrote it."""


class Export(Struct, frozen=True):
    """A registered format.

    Attributes:
        takes: schemas of the tables that it can write; it writes those of any schema that fits one.
        write: called with the source, an empty folder, a `Progress` and the options.
        read_by: the trainers that read it.
        opens: lines that open an export in its trainer, by ``[<layout>] [<name of the schema>]``; the most specific key wins. Placeholders are
            the options and those that `opening` adds.
        options: names and defaults of its options.
        readers: trainers of one layout or schema, keyed as `opens`, if not all of `read_by`.
        images: kinds of files whose paths it stores, with their positions or in their order.
        attention: whether it stores which tokens are attended.
        lists: names of lists beside tokens that it stores.
        margins: whether it stores the margins of pairs.
        chats: whether it needs the messages of each record (`Table.chats`); ``whole``: with reasoning and calls, and its tools beside them.
        tokenizer: whether it needs the tokenizer (`Table.tokenizer`).
        keeps_borders: whether it stores where documents of a token stream end, independent of token ids.
        only: options that apply to some sources only.
        keeps_mask: whether a token stream keeps its loss mask, given the options.
        kind: of its files, for the web UI.
    """

    name: str
    takes: tuple[Schema, ...]
    write: Callable[..., None]
    read_by: str
    opens: Mapping[str, tuple[str, ...]]
    options: Mapping[str, inspect.Parameter] = field(default_factory=dict)
    readers: Mapping[str, str] = field(default_factory=dict)
    images: tuple[str, ...] = ()
    attention: bool = False
    lists: tuple[str, ...] = ()
    margins: bool = False
    chats: bool | Literal["whole"] = False
    tokenizer: bool = False
    only: Only = field(default_factory=dict)
    keeps_borders: bool = True
    keeps_mask: Callable[[Mapping[str, Any]], bool] = lambda options: True
    kind: str = "numpy"

    def taken(self, schema: Schema) -> Schema:
        """The schema of `takes` that another fits.

        Raises:
            ConfigError: it fits none.
        """
        if (found := next((taken for taken in self.takes if schema.fits(taken)), None)) is None:
            others = _formats_that(lambda candidate: any(map(schema.fits, candidate.takes)))
            raise ConfigError(
                f"{self.name} takes {', '.join(taken.name for taken in self.takes)}, not {schema.name}. Formats that do: {others or 'none'}"
            )
        return found

    def means(self, option: str, schema: Schema, options: Mapping[str, Any]) -> bool:
        """Whether an option applies to tables of a schema, given the other options."""
        filled = {**{name: parameter.default for name, parameter in self.options.items()}, **options}
        return option not in self.only or self.only[option](schema, filled)

    @property
    def types(self) -> dict[str, Any]:
        """The type of each option, with bounds."""
        return get_type_hints(self.write, include_extras=True)

    def below(self, base: Path, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options, with relative folders of files that it reads made absolute below `base`."""
        read = [name for name, hint in self.types.items() if Folder in get_args(hint) and isinstance(options.get(name), str)]
        return {**options, **{name: str((base / options[name]).absolute()) for name in read}}

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (inspect.getdoc(self.write) or "").split("\n", 1)[0]


_EXPORTS: dict[str, Export] = {}
_READERS: dict[str, Read] = {}


def exporter(name: str, *takes: Schema, **attributes: Any) -> Callable[[Write], Write]:
    """Register ``write(source, out, progress, *, option=default, …)`` as the format `name`. `takes` and `attributes` as in `Export`."""

    def register(write: Write) -> Write:
        plugins.claim("export format", [name], write)
        parameters = inspect.signature(write).parameters.values()
        options = {parameter.name: parameter for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY}
        _EXPORTS[name] = Export(name, takes, write, options=options, **attributes)
        return write

    return register


def reads(name: str) -> Callable[[Read], Read]:
    """Register ``read(folder, source, options)`` as the reader of the format `name`."""

    def register(read: Read) -> Read:
        return _READERS.setdefault(name, read)

    return register


@cache
def exports() -> dict[str, Export]:
    """Every format by name, sorted, those of other packages too."""
    plugins.load_all("exports")
    return dict(sorted(_EXPORTS.items()))


def export_named(format: str) -> Export:
    """The format called `format`.

    Raises:
        ConfigError: no such format; the message names the nearest.
    """
    require_known("no export format", format, exports(), "Known")
    return exports()[format]


def reader(format: str) -> Read:
    """The function that opens an export of a format; options that it is not given have their defaults."""
    target = export_named(format)
    if format not in _READERS:
        raise ConfigError(f"export format {format!r} has no reader, so nothing proves its files. Register one with @reads({format!r})")
    defaults = {name: parameter.default for name, parameter in target.options.items()}
    return lambda folder, source, options: _READERS[target.name](folder, source, {**defaults, **options})


_TRL_TRAINERS: Mapping[str, str] = {"label": "KTOTrainer(model=model", "gold": "GRPOTrainer(model=model, reward_funcs=reward"}
"""Column of lines → TRL's trainer for them; `DPOTrainer` for other lines."""
_OF_LISTS: Mapping[str, str] = {
    **dict.fromkeys(
        ("hf_arrow", "hf_parquet"), 'dataset[0]["responses"]  # with prompt and rewards, the best first: for a loss of whole lists'
    ),
    "sentence_transformers": "CrossEncoderTrainer(model=model, train_dataset=dataset, loss=PListMLELoss(model))",
}
"""Format → its last line for lists of answers, which no trainer of TRL reads."""


def opening(format: str, folder: Path, source: Table, options: Mapping[str, Any]) -> tuple[str, str]:
    """The trainers that read the export in `folder`, and the lines that open it there.

    Args:
        source: the exported source.
        options: all options of the export, defaults included.
    """
    target = export_named(format)
    files = "messages" if options.get("messages") else "images" if options.get("image_dir") else ""
    taken, layout = target.taken(source.schema).name, options.get("layout") or files
    keys = [*([f"{layout} {taken}", layout] if layout else []), taken, ""]
    row_len = source.width or 2048
    stem = "sft_packed" if source.width else "pile_train" if source.path is None else source.path.stem
    line = {} if source.path is None else next(iter(source), {})
    placeholders = {
        "trl_trainer": next((call for column, call in _TRL_TRAINERS.items() if column in line), "DPOTrainer(model=model"),
        "folder": folder.as_posix(),
        "level": "sentence" if STARTS in source.columns else "document",
        "row_len": row_len,
        "align": source.align,
        "part": "val" if str(options.get("split", "")).startswith(("val", "dev")) else "train",
        "neat_len": row_len + 1,
        "neat_pack": " --neat-pack" if options.get("neat") else "",
        "file": options.get("name") or stem,
    }
    lines = next(target.opens[key] for key in keys if key in target.opens)
    if "responses" in line and format in _OF_LISTS:
        lines = (*lines[:-1], _OF_LISTS[format])
    trainer = next((target.readers[key] for key in keys if key in target.readers), target.read_by)
    return trainer, "\n".join(lines).format(**{**options, **placeholders})


def export(
    source: Published | Path | str | Table,
    format: str,
    out_dir: Path | str,
    *,
    stream: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Path:
    """Write `source` in `format` to `out_dir`, and return that folder.

    Files are written to a temporary folder that is renamed at the end, so an interrupted run leaves no partial export. Equal sources
    and options give equal bytes.

    Args:
        source: an opened store, or the folder of one, e.g. ``stores/sft_packed/current``.
        format: one of `exports`.
        stream: which stream, if the folder has several.
        options: of the format; see its page in ``docs/formats``.

    Raises:
        ConfigError: no such format or option; a source that the format cannot hold; an `out_dir` that is not empty, cannot be created,
            or is being written by another export.
        StoreError: the source is not a store.
    """
    target = export_named(format)
    check_options(f"export {target.name!r}", options, target.write, target.options)
    check_folder(Path(out_dir))
    check_borders(target, _recipe_of(source))
    if isinstance(source, Published | Path | str):
        source = open_table(source.directory if isinstance(source, Published) else Path(source), stream)
    target.taken(source.schema)
    check_options_apply(target, source.schema, options)
    _check_places(target, source)
    if not len(source):
        raise ConfigError("nothing to export: the source has no rows")
    out = Path(out_dir)
    write_whole(out, lambda folder: target.write(source, folder, progress or _no_progress, **options))
    return out


def _no_progress(done: int, total: int) -> None:
    """The default `Progress`."""


def check_borders(target: Export, recipe: Mapping[str, Any]) -> None:
    """Raises:
    ConfigError: the documents have no end-of-text token, and the format stores no other document borders.
    """
    if recipe.get("append_eod") is False and not target.keeps_borders:
        formats = _formats_that(lambda candidate: candidate.keeps_borders and TOKENS in candidate.takes)
        raise ConfigError(
            f"export {target.name!r} tells documents apart by the end-of-text token alone, which these lack (append_eod: false): they would be "
            f"one text. Set append_eod: true, or use a format that keeps borders: {formats}"
        )


def _recipe_of(source: object) -> Mapping[str, Any]:
    """The recipe of a store; empty for a source without a manifest."""
    if isinstance(source, Published):
        return source.manifest.recipe
    return Manifest.read(Path(source)).recipe if isinstance(source, Path | str) and (Path(source) / MANIFEST).is_file() else {}


def _check_places(target: Export, source: Table) -> None:
    """Raises:
    ConfigError: the format cannot store the images, the attention mask, the lists or the margins of the source.
    """
    count, kinds = len(source.images), source.images.kinds
    if not kinds <= {*target.images}:
        raise ConfigError(
            f"export {target.name!r} would lose {count:,} {' and '.join(f'{kind}s' for kind in sorted(kinds))}: it has no place for their paths, and their "
            f"tokens would be left without meaning. Formats with them: {_formats_that(lambda candidate: kinds <= {*candidate.images})}"
        )
    if source.has("attention") and not target.attention:
        raise ConfigError(
            f"export {target.name!r} cannot say which tokens are not attended, so a model would attend to all of them. Formats that can: "
            f"{_formats_that(lambda candidate: candidate.attention)}"
        )
    for name, lists in source.lists.items():
        if name not in target.lists:
            formats = _formats_that(lambda candidate, name=name: name in candidate.lists)  # type: ignore[misc]
            raise ConfigError(
                f"export {target.name!r} has no place for the {len(lists):,} {declared()[name].entries}. Formats with one: {formats}"
            )
    if source.schema.fits(TOKENS) and (lost := [name for name in source.has("value") if name != STARTS]):
        raise ConfigError(f"export {target.name!r} has no place for {', '.join(lost)}, and neither has another format of {TOKENS.name}s")
    if MARGIN in source.columns and not target.margins:
        raise ConfigError(
            f"export {target.name!r} has no place for the margins of {len(source):,} pairs. Formats with one: "
            f"{_formats_that(lambda candidate: candidate.margins)}. Or leave them out: option margin of group_pair, ignore: [margin] of other domains"
        )


def _formats_that(can: Callable[[Export], bool]) -> str:
    return ", ".join(name for name, candidate in exports().items() if can(candidate))


def check_options_apply(target: Export, schema: Schema, options: Mapping[str, Any]) -> None:
    """Raises:
    ConfigError: a non-default option that does not apply to tables of a schema.
    """
    for name, value in options.items():
        if value != target.options[name].default and not target.means(name, schema, options):
            others = ", ".join(f"{key} = {setting!r}" for key, setting in options.items() if key != name) or "these options"
            raise ConfigError(
                f"export {target.name!r}, option {name!r} = {value!r} has no effect for {schema.name} with {others}. Leave it out"
            )


def check_folder(out: Path) -> None:
    """Raises:
    ConfigError: `out` cannot become the folder of an export; the message says why.
    """
    target = out.resolve()
    if target == Path.cwd():
        raise ConfigError(
            f"cannot export to {str(out)!r}: it is the current folder, and an export puts a new one in place. Name another folder"
        )
    existing = next(path for path in (target, *target.parents) if path.exists() or path.is_symlink())
    if not existing.is_dir():
        problem = "is a file" if existing == target else f"is below {existing}, which is a file"
        raise ConfigError(f"cannot export to {out}: it {problem}, and an export is a folder. Name another folder")
    if existing == target and any(target.iterdir()):
        raise ConfigError(f"{out} is not empty: an export never mixes with what is there. Remove it, or name another folder")


def write_whole(out: Path, write: Callable[[Path], None]) -> None:
    """Call `write` with a temporary folder, sync it to disk and rename it to `out`.

    Raises:
        ConfigError: another export to `out` is under way, or its parent is not writable.
    """
    target = out.resolve()
    busy = ConfigError(f"another export to {target} is under way. Wait until it ends, or name another folder")
    with whole_folder(target, lambda: check_folder(out), busy=busy) as work:
        write(work)


def _check_file_name(name: str) -> str:
    if name in ("", ".", "..") or any(character in name for character in "/\\\0"):
        raise PydanticCustomError("file_name", "must be the name of a file in the export's folder: not empty, without / and \\")
    return name


def _check_split_name(name: str) -> str:
    if re.fullmatch(r"\w+", name) is None:
        raise PydanticCustomError("split_name", "must be the name of a split: letters, digits and _")
    return name


Count = Annotated[int, Field(ge=1, le=MOST)]
"""A number of rows, tokens or bytes, at least 1."""
Size = Annotated[int, Field(ge=1, le=2**32 - 1)]
"""Bytes of a file that has 32-bit offsets and is built in memory."""
TokenId = Annotated[int, Field(ge=0, lt=1 << 31)]
"""A token id; every format stores int32 or smaller."""
FileName = Annotated[str, AfterValidator(_check_file_name)]
"""A name that stays in the folder of the export."""
Split = Annotated[str, AfterValidator(_check_split_name)]
"""A split's name, as Hugging Face `datasets` accepts it."""
Folder = Annotated[str, "read"]
"""A folder of files that are read; in a configuration it is relative to the configuration's folder."""
