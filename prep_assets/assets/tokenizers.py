"""Tokenizers of families: each is opened once in a process, compared with what transformers makes of it, and bound to a chat template."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from prep_assets.caches import bounded_cache
from prep_assets.config.models import FAMILIES, Family
from prep_assets.errors import ConfigError
from prep_assets.schemas.own_code import own_code_hash
from prep_assets.templates.chat_template import ChatTemplate
from prep_assets.templates.written import bind
from prep_assets.tokenization.agreement import Agreement, compared, refuse_disagreement
from prep_assets.tokenization.code_proof import prove
from prep_assets.tokenization.code_tokenizer import from_code
from prep_assets.tokenization.engines import Engines, choose_engine
from prep_assets.tokenization.load import folder_of, from_file, from_transformers, published_file
from prep_assets.tokenization.reference_engine import ReferenceEngine
from prep_assets.tokenization.vocabulary import Vocabulary

_Changes = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class Opened:
    """A family's tokenizer.

    Attributes:
        vocabulary: as it is published, without what a template adds to its control tokens.
        folder: where its files are.
        agreement: how transformers reads them; `None` where the configuration has chosen.
    """

    vocabulary: Vocabulary
    folder: Path
    agreement: Agreement | None


def _files(family: Family, configs: Path, cache: Path) -> tuple[Path, str, str | None, str, _Changes]:
    local = configs / family.tokenizer
    own = "" if family.tokenizer_class is None else f"{family.tokenizer_class} {own_code_hash(family.tokenizer_class)}"
    return local, family.tokenizer, family.tokenizer_revision, f"{family.tokenizer_loader} {own}", _last_changes(local)


@bounded_cache("tokenizers", len(FAMILIES), key=_files, large=True)
def open_tokenizer(family: Family, configs: Path, cache: Path) -> Opened:
    """The tokenizer that a family names.

    Args:
        cache: folder for what was found of tokenizers of one's own code.

    Raises:
        ConfigError: it does not open, a hub id has no commit, or transformers reads it otherwise and the configuration does not choose.
    """
    local = configs / family.tokenizer
    if family.tokenizer_class is not None:
        vocabulary = from_code(family.tokenizer, local, family.tokenizer_class)
        assert vocabulary.code is not None
        prove(vocabulary.code, cache)
        return Opened(vocabulary, local, None)
    if not local.exists() and family.tokenizer_revision is None:
        raise ConfigError(
            f"tokenizer {family.tokenizer!r} is not a directory under {configs}; a hub id needs tokenizer_revision, the commit, "
            "so that the same build gives the same tokens tomorrow"
        )
    if local.exists() and family.tokenizer_revision is not None:
        raise ConfigError(
            f"tokenizer {family.tokenizer!r} is a directory under {configs}, which has no revisions. Leave tokenizer_revision "
            f"({family.tokenizer_revision!r}) out"
        )
    folder = folder_of(family.tokenizer, base=configs, revision=family.tokenizer_revision)
    read = from_transformers if family.tokenizer_loader == "transformers" else from_file
    vocabulary = read(family.tokenizer, folder)
    found = None
    # a converted file is proven whatever the configuration chooses
    if family.tokenizer_loader == "auto" or vocabulary.file != "tokenizer.json":
        found = refuse_disagreement(vocabulary, folder)
    return Opened(vocabulary, folder, found)


@bounded_cache(
    "bound tokenizers", len(FAMILIES), key=lambda opened, template: (opened.vocabulary.hash, template.hash, template.control), large=True
)
def bound_vocabulary(opened: Opened, template: ChatTemplate) -> Vocabulary:
    """The tokenizer as a family with a chat template uses it: the added tokens that the template writes are control tokens."""
    return bind(opened.vocabulary, template)


def check_made_by(opened: Opened, made_by: str, configs: Path) -> None:
    """Stop where another tokenizer than the family's made the token ids of a domain.

    Args:
        made_by: its folder below `configs`, or ``sha256:`` and the hash of its ``tokenizer.json``.

    Raises:
        ConfigError: it is another one; the message says where they differ.
    """
    name = f"tokenized_by: {made_by}"
    if made_by.startswith("sha256:"):
        own = hashlib.sha256(published_file(opened.folder).read_bytes()).hexdigest()
        if made_by.removeprefix("sha256:") != own:
            raise ConfigError(f"{name} is another tokenizer than {opened.vocabulary.name}, whose file has sha256:{own}")
        return
    if not (configs / made_by).exists():
        raise ConfigError(f"{name}: there is neither a folder nor a file {configs / made_by}")
    ours, theirs = opened.vocabulary.spec, from_file(made_by, configs / made_by).spec
    differing = [part for part in ("model", "added_tokens", "normalizer", "pre_tokenizer") if ours.get(part) != theirs.get(part)]
    if differing:
        raise ConfigError(f"{name} differs from {opened.vocabulary.name} in {', '.join(differing)}: its ids mean something else here")


@bounded_cache("engines", 2, key=lambda opened, vocabulary, engine: (vocabulary.hash, engine, _verdict(opened)), large=True)
def engines_of(opened: Opened, vocabulary: Vocabulary, engine: str) -> Engines:
    """The engines that tokenize; where transformers has another definition that gave the same ids so far, a sample of the data is compared."""
    engines = choose_engine(vocabulary, reference_only=engine == "reference")
    for each in (engines.first, engines.rest):
        if isinstance(each, ReferenceEngine):
            each.take_charge()
    return compared(engines, vocabulary, from_transformers(vocabulary.name, opened.folder)) if _verdict(opened) else engines


def _verdict(opened: Opened) -> str:
    return "" if opened.agreement is None or opened.agreement.same else opened.agreement.verdict


def _last_changes(directory: Path) -> _Changes:
    """Name, size and time of change of the files of a local tokenizer: a process that runs for days must notice another one."""
    folder = directory.parent if directory.is_file() else directory
    found = sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
    return tuple((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in found)
