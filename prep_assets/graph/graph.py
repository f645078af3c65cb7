"""The graph: every asset and what feeds it. Dagster's definitions and the command line are both made from it."""

from __future__ import annotations

import copyreg
import re
from collections.abc import Iterator, Mapping
from tokenize import TokenError

from msgspec.structs import replace

from prep_assets import plugins
from prep_assets.checks.bounds import BOUNDED, unknown_reason, with_rules
from prep_assets.checks.registry import added_checks
from prep_assets.config.family import Family
from prep_assets.config.models import FAMILIES
from prep_assets.errors import ConfigError, PrepAssetsError, Refused, nearest, require_known
from prep_assets.own_code import added_code
from prep_assets.pipeline.asset import Asset, Check, FromLines, FromParts, Store, open_streams
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.reference_ids import keep_words
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.stores.table import TOKENS, Schema, Table, open_table, stream_names
from prep_assets.stores.version_folders import Published


def _declared() -> dict[str, Asset]:
    """The assets of all families, with the checks that extensions and other packages add."""
    entries, checks, every = plugins.entries("families"), added_checks(), dict[str, Asset]()
    further = [(entry, asset) for entry in plugins.entries("assets").values() for asset in plugins.part_of(entry, "ASSETS")]
    for _, asset in further:
        require_known(f"{asset.name}: no family", asset.family, FAMILIES)
    ours = {*plugins.ours("families").values(), *plugins.ours("assets").values()}
    for family, entry in ((family, entries[family]) for family in FAMILIES):
        listed = [(entry, asset) for asset in plugins.part_of(entry, "ASSETS")]
        for declared, asset in listed + [each for each in further if each[1].family == family]:
            if asset.name in every or asset.family != family:
                raise ConfigError(f"{plugins.package_of(declared)}: {asset.name!r}, of {asset.family!r}, cannot be an asset of {family!r}")
            own = {} if declared in ours else {"family": str(added_code(declared.module))}
            every[asset.name] = _with_checks(asset, checks.get(asset.name, {}), own)
    for name in checks:
        require_known(f"checks {', '.join(check.name for check in checks[name])}: no asset", name, every)
    return every


def _with_checks(asset: Asset, checks: Mapping[Check, str], own: Mapping[str, str]) -> Asset:
    """An asset with the checks of extensions and other packages. `own`: the code of its family, if that is another package's."""
    if taken := {check.name for check in checks} & {check.name for check in asset.checks}:
        raise ConfigError(f"{asset.name} has a check {min(taken)!r} already; {', '.join(sorted({*checks.values()}))} cannot add another")
    added = {**own, **{check.name: code for check, module in checks.items() if (code := added_code(module))}}
    return replace(asset, checks=(*asset.checks, *checks), added=added) if added or checks else asset


EVERY: Mapping[str, Asset] = _declared()
"""All assets but exports, those among them that not every configuration has."""
ASSETS: Mapping[str, Asset] = {name: asset for name, asset in EVERY.items() if asset.absent is None}
"""Those that every configuration of their family has."""
CHECKS: Mapping[str, tuple[Check, ...]] = {name: asset.checks for name, asset in EVERY.items()}
"""The checks of each."""


def assets_of(workspace: Workspace) -> Mapping[str, Asset]:
    """Every asset that the configuration has: those of each family that has a file, and the exports that it asks for.

    Raises:
        ConfigError: the configuration is invalid.
    """
    if fault := unknown_family(workspace):
        raise ConfigError(fault)
    families = [family for family in FAMILIES if workspace.has(family)]
    known = {name: asset for family in families for name, asset in family_assets(workspace, family).items()}
    return {**{name: asset for name, asset in known.items() if name in EVERY}, **known}


def unknown_family(workspace: Workspace) -> str:
    """What is wrong with a file of domains whose name is no family's: misspelt, or of a package that is not installed; ``""`` without one."""
    for path in sorted(workspace.configs.glob("*.yaml")):
        name = path.name.partition(".")[0]
        if name not in FAMILIES and re.search(r"^domains:", path.read_text("utf-8", "replace"), re.MULTILINE):
            return (
                f"{path}: there is no family {name!r}{nearest(name, FAMILIES) or '.'} Rename the file, or install the package that adds the family. "
                f"There are: {', '.join(FAMILIES)}"
            )
    return ""


def family_assets(workspace: Workspace, family: str) -> Mapping[str, Asset]:
    """The assets of one family that the configuration has, and its exports.

    Raises:
        ConfigError: the family's configuration is invalid.
    """
    assets = [asset for asset in EVERY.values() if asset.family == family and not (asset.absent and asset.absent(workspace))]
    if family not in plugins.ours("families"):
        _require_verdicts(workspace, family)
    require_known_rules(workspace, family)
    asked = plugins.of_extension("exporting", "assets")
    return {asset.name: asset for asset in (*assets, *(asked(workspace, family) if asked else ()))}


def require_known_rules(workspace: Workspace, family: str) -> None:
    """Raises:
    ConfigError: `quality.bounds` or `quality.max_refused` names an asset or a reason that there is not.
    """
    options, fault = workspace.family(FAMILIES[family]), ""
    if options.quality.bounds:
        checked = [asset for asset in EVERY.values() if asset.family == family and any(check.name in BOUNDED for check in asset.checks)]
        bounded = {asset.name for asset in checked if not (asset.absent and asset.absent(workspace))}
        for name in options.quality.bounds:
            if not fault and (asset_name := name.partition(".")[0]) not in bounded:
                known = f"{nearest(asset_name, bounded) or '.'} There are: {', '.join(sorted(bounded))}"
                fault = f"quality.bounds.{name}: no asset {asset_name!r} with metrics{known}"
    if fault := fault or unknown_reason(options):
        raise ConfigError(f"{workspace.configs / family}.yaml:\n  {fault}")


def _require_verdicts(workspace: Workspace, family: str) -> None:
    """Raises:
    ConfigError: the configuration asks for verdicts on the rows of another package's family that none of its assets gives.
    """
    where = f"{workspace.configs / family}.yaml"
    if workspace.family(FAMILIES[family]).quality.steps and f"{family}_quality" not in EVERY:
        raise ConfigError(
            f"{where}: quality.steps has no effect: the family has no asset {family}_quality. Add those of verdict_assets to its ASSETS"
        )
    if workspace.has("eval") and f"{family}_leaks" not in EVERY:
        raise ConfigError(
            f"{where}: nothing searches it for what eval.yaml holds out. Add those of verdict_assets to the ASSETS of the family"
        )


def asset_named(name: str, workspace: Workspace | None = None) -> Asset:
    """The asset called `name`; with a workspace, also one of its exports.

    Raises:
        ConfigError: there is none; the message names the nearest.
    """
    if name in ASSETS:
        return ASSETS[name]
    known = EVERY if workspace is None else assets_of(workspace)
    if name in known:
        return known[name]
    if name in EVERY and workspace is not None and (absent := EVERY[name].absent):
        raise ConfigError(f"no asset {name!r}: {absent(workspace)}")
    raise ConfigError(f"no asset {name!r}{nearest(name, known) or '.'} There are: {', '.join(known)}")


# assets have functions of their own, so they travel to workers by their names
copyreg.pickle(Asset, lambda asset: (asset_named, (asset.name,)))


def asset_and_partitions(workspace: Workspace, name: str, partition: str | None) -> tuple[Asset, tuple[str, ...]]:
    """An asset and the partition that was asked for, or all that it has. A domain of an asset that merges domains is the store that it merges.

    Raises:
        ConfigError: no such asset or partition; the message names the nearest.
    """
    asset = asset_named(name, workspace)
    if not partition:
        return asset, asset.partitions(workspace)
    if asset.parts:
        asset = EVERY[asset.parts]
    if not asset.partitioned:
        raise ConfigError(f"{name} has no partitions: it is one store for all domains. Leave out --partition {partition}")
    known = asset.partitions(workspace)
    require_known(f"{name} has no partition", partition, known)
    return asset, (partition,)


def one_partition(workspace: Workspace, name: str, partition: str | None) -> tuple[Asset, str]:
    """An asset and its one partition that is meant; it may be left out where there is only one.

    Raises:
        ConfigError: no such asset or partition, or a choice among several is needed.
    """
    asset, partitions = asset_and_partitions(workspace, name, partition)
    if len(partitions) > 1:
        raise ConfigError(f"{name} has one store for each domain. Say which with --partition: {', '.join(partitions)}")
    return asset, partitions[0]


def upstream_of(workspace: Workspace, asset: Asset, partition: str) -> Iterator[tuple[Asset, str]]:
    """The stores that one store is made from: the same partition of a partitioned input of its family, or all partitions; and earlier partitions of its own."""
    for name in asset.upstream(workspace):
        above = EVERY[name]
        same = asset.partitioned and above.partitioned and asset.family == above.family
        for above_partition in (partition,) if same else above.partitions(workspace):
            yield above, above_partition
    for earlier in asset.before(workspace, partition):
        yield asset, earlier


def lines_of(asset: str, stream: str) -> tuple[str, str] | None:
    """The asset and the file whose lines a stream of tokens was made of, in its own order; `None` where it was made of none."""
    source = EVERY[asset].source
    if isinstance(source, FromLines):
        folder = stream.rpartition("/")[0]
        return next(lines for name, lines in source.files.items() if name.rpartition("/")[0] == folder)
    if not isinstance(source, FromParts):
        return None
    return source.lines.get(stream) or (lines_of(source.assets[1], stream) if len(source.assets) > 1 else None)


def holds(asset: str, schema: Schema) -> bool:
    """Whether an asset has a stream of this kind; an export has none."""
    return asset in EVERY and EVERY[asset].holds(schema)


def store_of(workspace: Workspace, published: Published) -> Store:
    """A published store with its asset. What one check of a run has opened, the others take."""
    name, kept = published.manifest.asset, {} if published.evidence is None else published.evidence
    return Store(workspace, EVERY[name] if name in EVERY else asset_named(name, workspace), published, kept=kept)


def run_check(check: Check, workspace: Workspace, published: Published) -> Verdict:
    """The verdict of a check. One that raises fails, whatever a damaged store makes a reader raise, with the reason as its summary."""
    try:
        store = store_of(workspace, published)
        verdict = check.run(store)
        judged = check is next((each for each in store.asset.checks if each.name in BOUNDED), None)
        return with_rules(store, verdict) if judged else verdict
    except PrepAssetsError as error:
        fault = str(error)
    except Refused as error:
        fault = f"a row that is stored is refused when it is read again: {error}"
    except (OSError, ValueError, KeyError, IndexError, EOFError, ArithmeticError, SyntaxError, TokenError) as error:  # numpy parses headers
        fault = f"the store cannot be read ({type(error).__name__}: {error})"
    except Exception as error:
        fault = f"the check could not be carried out ({type(error).__name__}: {error})"
    finally:
        keep_words()
    return Verdict(False, fault, {}, Worst(published.where, fault))


# The streams of a published store.

_HELD_OUT = re.compile(r"(.*_)?(dev|test)(_packed|/.*)?")


def streams(published: Published) -> list[str]:
    """The streams, tables or line files of a store, held-out ones last; empty for a raw store."""
    return sorted(stream_names(published.directory), key=_is_held_out)


def _is_held_out(stream: str) -> bool:
    return _HELD_OUT.fullmatch(stream) is not None


def stream_table(published: Published, stream: str) -> Table:
    """Open one stream, table or line file of a store.

    Raises:
        StoreError: it is missing or cannot be read.
    """
    asset, partition = EVERY.get(published.manifest.asset), published.manifest.partition
    schema = TOKENS if asset is None else asset.schema_of(stream, partition)
    return open_table(published.directory, stream, partition, schema=schema)


def has_records(published: Published) -> bool:
    """Whether a store has records of its own; an export holds those of the store that it was made from."""
    asset = EVERY.get(published.manifest.asset)
    return asset is not None and bool(asset.streams)


def tables_of(published: Published) -> list[Table]:
    """The streams of a store, held-out ones last; none for raw stores, certificates and exports.

    Raises:
        StoreError: the payload cannot be read.
    """
    asset = EVERY.get(published.manifest.asset)
    tables = {} if asset is None else open_streams(asset, published)
    return [tables[name] for name in sorted(tables, key=_is_held_out)]


EXPORT = "export"
"""Middle word of the assets that keep exports: ``sft_export_trl``."""


def family_of_export(name: str) -> str:
    """The family of the asset that keeps an export, which its name begins with; empty where it is another one."""
    return next((family for family in FAMILIES if name.startswith(f"{family}_{EXPORT}_")), "")


def family_of(workspace: Workspace, asset: str) -> Family:
    """The configuration of an asset's family."""
    return workspace.family(FAMILIES[asset_named(asset, workspace).family])
