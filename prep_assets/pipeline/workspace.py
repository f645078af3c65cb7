"""Workspaces: a configuration folder and a store folder, with the tokenizers and files opened once."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from msgspec import Struct

from prep_assets import plugins
from prep_assets.caches import bounded_cache
from prep_assets.config.family import Chat, Family
from prep_assets.config.loading import VARIANT, config_dir, load_family, store_dir, with_tombstones
from prep_assets.config.models import FAMILIES, TRAINED, family_name
from prep_assets.errors import ConfigError, StoreError, TemplateError
from prep_assets.own_code import own_code_hash
from prep_assets.pipeline.media import record_files
from prep_assets.pipeline.source_files import Progress, SourceFiles, with_found_domains
from prep_assets.schemas.registry import convert_with
from prep_assets.stores.manifest import digest
from prep_assets.stores.published import Place, open_published
from prep_assets.stores.remote import local_root, remote_of
from prep_assets.stores.version_folders import Pointers, Published
from prep_assets.text.agreement import Agreement, compared, refuse_disagreement
from prep_assets.text.engines import Engines, ReferenceEngine, choose_engine
from prep_assets.text.template import ChatTemplate, bind
from prep_assets.text.vocabulary import Vocabulary, folder_of, from_file, from_transformers, loader, published_file
from prep_assets.workers.pool import Pool, Workers
from prep_assets.workers.shards import Runner

# How commands and addresses of pages name a store.


def build_command(asset: str, partition: str = "") -> str:
    """The command that builds an asset."""
    variant = os.environ.get(VARIANT)
    return f"prep-assets {f'--variant {variant} ' if variant else ''}build {asset}" + (f" --partition {partition}" if partition else "")


def arguments(asset: str, partition: str) -> str:
    """The arguments of commands that name a store."""
    return f"{asset} -p {partition}" if partition else asset


# Addresses of the pages that `prep-assets view` serves.

HOST, PORT = "127.0.0.1", 8899
STORES, CANDIDATES, TRACES = "/stores/", "/candidates/", "/traces/"
"""Paths of pages of current stores, of candidates whose checks fail, and of traces."""
VIEW = "PREP_ASSETS_VIEW_URL"
"""Environment variable with the server's address, where it is not on this machine."""


def page_address(asset: str, partition: str = "", *, candidate: bool = False) -> str:
    """The address of a store's page."""
    base = os.environ.get(VIEW) or f"http://{HOST}:{PORT}"
    return base.rstrip("/") + (CANDIDATES if candidate else STORES) + quote("/".join(filter(None, (asset, partition))))


# Tokenizers of families: opened once per process, compared with transformers, and bound to a chat template.


class Opened(Struct, frozen=True):
    """A family's tokenizer.

    Attributes:
        vocabulary: as published, without the control tokens that a template adds.
        folder: the folder of its files.
        agreement: the comparison with transformers; `None` if the configuration chooses the loader.
    """

    vocabulary: Vocabulary
    folder: Path
    agreement: Agreement | None

    @property
    def otherwise(self) -> str:
        """Where transformers' definition differs; empty if it does not, or was not compared."""
        return "" if self.agreement is None or self.agreement.same else self.agreement.verdict


def _tokenizer_key(family: Family, configs: Path, cache: Path) -> tuple[object, ...]:
    """The cache key of a tokenizer. It holds name, size and mtime of local files, because a process that runs for days must notice changes."""
    local = configs / family.tokenizer
    code = "" if family.tokenizer_class is None else f"{family.tokenizer_class} {own_code_hash(family.tokenizer_class)}"
    folder = local.parent if local.is_file() else local
    changes = list[tuple[str, int, int]]()
    if folder.is_dir():
        with os.scandir(folder) as entries:
            changes = sorted((entry.name, (stat := entry.stat()).st_size, stat.st_mtime_ns) for entry in entries if entry.is_file())
    return local, family.tokenizer, family.tokenizer_revision, f"{family.tokenizer_loader} {code}", tuple(changes)


@bounded_cache("tokenizers", len(TRAINED), key=_tokenizer_key, large=True)
def open_tokenizer(family: Family, configs: Path, cache: Path) -> Opened:
    """The tokenizer that a family names.

    Args:
        cache: folder for the results of proving tokenizers of user code.

    Raises:
        ConfigError: it does not open, a hub id has no commit, or transformers reads it differently and the configuration does not choose.
    """
    local = configs / family.tokenizer
    if family.tokenizer_class is not None:
        return Opened(loader("code")(family.tokenizer, local, family.tokenizer_class, cache), local, None)
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
    agreement = None
    # a converted file is proven whatever the configuration chooses
    if family.tokenizer_loader == "auto" or vocabulary.file != "tokenizer.json":
        agreement = refuse_disagreement(vocabulary, folder)
    return Opened(vocabulary, folder, agreement)


@bounded_cache(
    "bound tokenizers", len(TRAINED), key=lambda opened, template: (opened.vocabulary.hash, template.hash, template.control), large=True
)
def bound_vocabulary(opened: Opened, template: ChatTemplate) -> Vocabulary:
    """The tokenizer of a family with a chat template: added tokens that the template writes are control tokens."""
    return bind(opened.vocabulary, template)


def check_made_by(opened: Opened, made_by: str, configs: Path) -> None:
    """Raise if the token ids of a domain come from another tokenizer than the family's.

    Args:
        made_by: folder below `configs`, or ``sha256:`` and the hash of the ``tokenizer.json``.

    Raises:
        ConfigError: the tokenizers differ; the message says where.
    """
    name = f"tokenized_by: {made_by}"
    if made_by.startswith("sha256:"):
        own_hash = hashlib.sha256(published_file(opened.folder).read_bytes()).hexdigest()
        if made_by.removeprefix("sha256:") != own_hash:
            raise ConfigError(f"{name} is another tokenizer than {opened.vocabulary.name}, whose file has sha256:{own_hash}")
        return
    if not (configs / made_by).exists():
        raise ConfigError(f"{name}: there is neither a folder nor a file {configs / made_by}")
    ours, theirs = opened.vocabulary, from_file(made_by, configs / made_by)
    differing = [part for part in ("model", "normalizer", "pre_tokenizer") if ours.spec.get(part) != theirs.spec.get(part)]
    here, there = (each.backend.get_vocab(with_added_tokens=True) for each in (ours, theirs))
    # one that is not added here has an id that no token has, and rows with it are refused
    added = ((token["content"], token["id"]) for token in theirs.spec["added_tokens"])
    differing += [f"its added token {text!r}" for text, number in added if here.get(text, max(number, ours.size)) != number]
    if differing:
        raise ConfigError(
            f"{name} differs from {ours.name} in {', '.join(differing)}: {len(here.items() & there.items()):,} of its {len(there):,} tokens have the same "
            "id here, and the others mean something else. Tokenize the texts again; for entries of a teacher see docs/schemas/distilled.md"
        )


@bounded_cache("engines", 2, key=lambda opened, vocabulary, engine: (vocabulary.hash, engine, opened.otherwise), large=True)
def engines_of(opened: Opened, vocabulary: Vocabulary, engine: str) -> Engines:
    """The engines of a tokenizer. If transformers defines it differently but gave the same ids so far, a sample of the data is compared."""
    engines = choose_engine(vocabulary, reference_only=engine == "reference")
    for member in (engines.first, engines.rest):
        if isinstance(member, ReferenceEngine):
            member.take_charge()
    return compared(engines, vocabulary, from_transformers(vocabulary.name, opened.folder)) if opened.otherwise else engines


# Workspaces: one configuration folder and one store folder, each file read once.

F = TypeVar("F", bound=Family)
T = TypeVar("T")


@dataclass(frozen=True)
class Workspace(SourceFiles):
    """A configuration folder and a store folder.

    Attributes:
        configs: folder of the families' YAML files.
        stores: root folder of all stores. A bucket's address becomes its mirror folder on this machine.
        overrides: family → options of this run, which override the file's.
        progress: called during long work.
        workers: number of processes for all families; `None`: as the families say.
        pool: the process pool for shards; `None`: work in this process.
        same: name → hash that configuration and tokenizer must have in a worker; empty in the process that plans.
        glanced: cache of the stores and options read, if each is to be read once.
        expected: asset and partition → content hash of the stores that a build reads, as its build key says.
        looks: whether source files are searched for domains (``domains: auto``); false: use the last ones found.
    """

    configs: Path
    stores: Path
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    progress: Progress | None = None
    workers: Workers | None = None
    pool: Pool | None = field(default=None, compare=False)
    same: Mapping[str, str] = field(default_factory=dict)
    looks: bool = True
    expected: Mapping[tuple[str, str], str] = field(default_factory=dict, compare=False, repr=False)
    _families: dict[str, Family] = field(default_factory=dict, init=False, repr=False, compare=False)
    glanced: dict[tuple[str, ...], Any] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "configs", Path(self.configs))
        object.__setattr__(self, "stores", local_root(self.stores))

    @classmethod
    def open(cls, *, progress: Progress | None = None) -> Workspace:
        """The workspace that the environment names (see `prep_assets.config.loading`)."""
        return cls(config_dir(), local_root(store_dir()), progress=progress)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the address instead of its mirror folder, and nothing that was opened."""
        remote = remote_of(self.stores)
        rebuild = partial(
            Workspace, overrides=self.overrides, workers=self.workers, same=self.same, looks=self.looks, expected=self.expected
        )
        return rebuild, (self.configs, self.stores if remote is None else remote.url)

    def overriding(self, family: str, options: Mapping[str, Any]) -> Workspace:
        """This workspace with some options of one family set for one run."""
        return self._with({**self.overrides, family: options}) if options else self

    @cached_property
    def plain(self) -> Workspace:
        """This workspace without overrides."""
        return self._with({}) if self.overrides else self

    def _with(self, overrides: Mapping[str, Mapping[str, Any]]) -> Workspace:
        """A copy with these overrides, which remembers nothing that was read with others."""
        return replace(self, overrides=overrides, glanced=None if self.glanced is None else {})

    def travelling(self, kind: type[Family], *, tokenized: bool = True) -> Workspace:
        """A copy to send to another process, without workers.

        Args:
            kind: the family to work on, whose configuration and tokenizer must be the same in the other process.
            tokenized: whether the tokenizer is needed.
        """
        name, family = family_name(kind), self.family(kind)
        same = {f"{name} configuration": configuration_hash(family)}
        if tokenized:
            same[f"{name} tokenizer"] = self.vocabulary(family).hash
        return Workspace(self.configs.absolute(), self.stores.absolute(), self.overrides, same=same, expected=self.expected)

    def runner(self, family: Family, *, busy: int = 1) -> Runner | None:
        """The runner of shards with the family's number of workers; `None` if one local process does the work.

        Args:
            busy: processors that this process keeps busy without workers; `auto` starts no workers for so few.
        """
        if self.pool is None:
            return None
        if family.cluster.kind == "ray":
            tasks: Runner = plugins.load(plugins.ours("runners")["ray"])(
                family.cluster.address, self.workers or family.workers, self.pool.effort
            )
            return tasks
        return self.pool.runner(self.workers or family.workers, busy=busy)

    def _compare(self, what: str, hash_of: Callable[[], str]) -> None:
        """Raise if a worker reads another configuration or tokenizer than the process that planned."""
        if what in self.same and (ours := hash_of()) != self.same[what]:
            raise ConfigError(
                f"{what}: it is another one on {platform.node()} ({ours[:12]}…) than where the build was started "
                f"({self.same[what][:12]}…). Share one folder between all nodes, or wait until it no longer changes, and build again"
            )

    def declared(self, kind: type[F]) -> F:
        """The configuration of a family from its file and the overrides, without domains found in sources."""
        name = family_name(kind)
        loaded = load_family(name, self.configs, self.overrides.get(name, {}))
        assert isinstance(loaded, kind)
        return loaded

    def family(self, kind: type[F]) -> F:
        """The configuration of a family with overrides applied and domains found in its sources."""
        name = family_name(kind)
        if name not in self._families:
            family = self.declared(kind)
            check_domains(family, f"{self.configs / name}.yaml")
            if family.finds_domains:
                family = with_found_domains(self, family, f"{self.configs / name}.yaml")
            self._families[name] = with_tombstones(family, name, self.configs)
            self._compare(f"{name} configuration", lambda: configuration_hash(self._families[name]))
        known = self._families[name]
        assert isinstance(known, kind)
        return known

    def family_domains(self, family: str) -> tuple[str, ...] | None:
        """The domains that the configuration of a family names; `None` if it is invalid."""
        try:
            return tuple(self.declared(FAMILIES[family]).domains)
        except ConfigError:
            return None

    def has(self, family: str) -> bool:
        """Whether the family has a configuration file."""
        return (self.configs / f"{family}.yaml").is_file()

    @property
    def where(self) -> str:
        """The store folder or the address, for messages."""
        remote = remote_of(self.stores)
        return str(self.stores) if remote is None else remote.url

    def place(self, asset: str, partition: str = "") -> Place:
        """The place of an asset's store."""
        return Place(self.stores, asset, partition)

    def at_a_glance(self) -> Workspace:
        """A copy that reads every store and tokenizer once, for looking at many stores while nothing is built."""
        return self._alike(glanced={})

    def expecting(self, contents: Mapping[tuple[str, str], str]) -> Workspace:
        """A copy that reads no other stores than these in their place; see `expected`."""
        return self._alike(expected=contents)

    def _alike(self, **changes: Any) -> Workspace:
        """A copy with the families as they were read."""
        copy = replace(self, **changes)
        copy._families.update(self._families)
        return copy

    def published(self, asset: str, partition: str = "", pointers: Pointers | None = None) -> Published | None:
        """An asset's current store. `pointers`: those of its place, if they were just read."""
        return self.once((asset, partition), lambda: self.place(asset, partition).current(pointers))

    def once(self, key: tuple[str, ...], look: Callable[[], T]) -> T:
        """What `look` gives, which is remembered where everything is to be read once."""
        if self.glanced is None:
            return look()
        if key not in self.glanced:
            self.glanced[key] = look()
        remembered: T = self.glanced[key]
        return remembered

    def built(self, asset: str, partition: str = "") -> Published:
        """An asset's current store, to be read.

        Raises:
            StoreError: there is none, or another one than `expected`; the message has the command that builds it.
        """
        published = open_published(self.stores, asset, partition, remedy=build_command(asset, partition))
        content = published.manifest.content_hash
        if (expected := self.expected.get((asset, partition), content)) != content:
            raise StoreError(
                f"{published.manifest.label} was built again by another process while this build began: it was {expected[:12]}… and is "
                f"{content[:12]}…. Nothing is published. Build again"
            )
        return published

    def content(self, asset: str, partition: str = "") -> str | None:
        """The content hash of an asset's current store; `None` if it has none."""
        published = self.published(asset, partition)
        return published.manifest.content_hash if published else None

    # -- tokenizer and template ---------------------------------------------------------------------------------------------------------

    def vocabulary(self, family: Family) -> Vocabulary:
        """The family's tokenizer. With a chat template, the added tokens that it writes are control tokens."""

        opened = self._tokenizer(family)
        vocabulary = opened.vocabulary
        if isinstance(family, Chat):
            with suppress(TemplateError):  # rendering with it raises it again; data without chats needs no template
                vocabulary = bound_vocabulary(opened, self.template(family))
        self._compare(f"{family_name(type(family))} tokenizer", lambda: vocabulary.hash)
        return vocabulary

    def engines(self, family: Family) -> Engines:
        """The engines that tokenize for the family."""

        return engines_of(self._tokenizer(family), self.vocabulary(family), family.engine)

    def check_tokenized_by(self, family: Family, made_by: str) -> None:
        """Raise if the token ids of a domain come from another tokenizer than the family's, see `check_made_by`."""

        check_made_by(self._tokenizer(family), made_by, self.configs)

    def _tokenizer(self, family: Family) -> Opened:
        return self.once(("tokenizer", family_name(type(family))), lambda: open_tokenizer(family, self.configs, self.stores / ".hashes"))

    def template(self, family: Chat) -> ChatTemplate:
        """The family's chat template."""
        from prep_assets.text.load_template import load_template

        def load() -> ChatTemplate:
            return load_template(
                family.template,
                self._tokenizer(family).vocabulary,
                base=self.configs,
                options=family.template_options,
                **record_files()(self, family).marks(),
                training=family.training_template,
            )

        return self.once(("template", family_name(type(family))), load)


def configuration_hash(family: Family) -> str:
    """The hash of a family's configuration, tombstones included."""
    forgotten = {name: sorted(domain.forgotten) for name, domain in family.domains.items()}
    return digest([family.model_dump(mode="json", by_alias=True), forgotten])


# Checks of an opened configuration beyond the file itself: the schemas of all domains, their options and forms.


def check_domains(family: Family, where: str) -> None:
    """Raise on unknown schemas or options, or schemas that do not give the form that the family needs.

    User functions are not imported: looking at the graph must not run their code.

    Raises:
        ConfigError: all of these at once, each with its key.
    """
    faults = []
    for name, domain in family.domains.items():
        if ":" in domain.schema_name:
            continue
        gives = family.form_of(name)
        try:
            convert_with(domain.schema_name, domain.options, gives=gives)
        except ConfigError as error:
            faults.append(f"  domains.{name}: {error}")
    if faults:
        raise ConfigError("\n".join([f"{where}:", *faults]))
