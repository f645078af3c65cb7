"""What rules say of versions: by their recipes, and by what they were made from."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache

from msgspec import structs

from prep_assets.config.base import left_out
from prep_assets.config.models import FAMILIES
from prep_assets.engine.plan import takes
from prep_assets.errors import ConfigError, nearest
from prep_assets.extensions.keep.versions import Facts, Key, Values, Version
from prep_assets.extensions.recall.rules import Compared, Entry, Look, Recall, Rule, compare, holds, meant, parse
from prep_assets.graph.graph import EVERY, family_of_export
from prep_assets.pipeline.asset import TEMPLATE
from prep_assets.stores.manifest import label_of
from prep_assets.stores.version_folders import CONTENT_LENGTH

Well = Callable[[Key, str], bool]
"""Whether a store has a version with these bytes that no recall concerns."""
_TOKENIZER = [f"tokenizer.{name}" for name in ("sha256", "loader", "tokenizers", "engine")]
_UNSET: Facts = {"tokenizer.pad_vocab_to": (None,), "tokenizer.pieces": (None,)}


class Rules:
    """What rules say of versions; what recipes may say shows in those that are given."""

    def __init__(self, versions: Iterable[Version] = ()) -> None:
        self._versions, self._seen, self._held = list(versions), defaultdict[str, set[str]](set), dict[tuple[str, Version], bool | None]()
        for version in versions:
            self._seen[version.key[0]] |= version.facts.keys()
        declared = {option for asset in EVERY.values() for option in asset.options} - {*TEMPLATE}  # recipes have what these resolve to
        self._names = {"asset", "partition", "template", *_TOKENIZER}.union(declared, *_unset().values(), *self._seen.values())

    def never(self, rule: Rule) -> dict[str, list[str]]:
        """Comparisons of a rule that hold of no recipe → what recipes say there, sorted.

        Raises:
            ConfigError: no recipe has such a name, or none has all names that are joined by ``and``.
        """
        here = sorted(asset for asset, names in self._seen.items() if names)
        never = {"".join(part): said for part in rule.parts if (said := self._said(part)) is not None}
        for node in ast.walk(rule.tree):
            joined = isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And)
            if joined and not any(self._could(Rule(rule.parts, node), asset) for asset in {*EVERY, *here}):  # type: ignore[arg-type]
                parts = [rule.parts[each.value] for each in ast.walk(node) if isinstance(each, ast.Constant)]  # type: ignore[index]
                of = {"".join(part): [asset for asset in here if self._could(Rule([part], ast.Constant(0)), asset)] for part in parts}
                told = "; ".join(f"{part}: {' '.join(assets[:6]) or 'none'}{' …' * (len(assets) > 6)}" for part, assets in of.items())
                raise ConfigError(
                    f"no recipe can say all of {' and '.join(of)}. Stores whose recipes can: {told}. Leave some out: what is made from it is found, too"
                )
        return never

    def _said(self, part: Compared) -> list[str] | None:
        if not meant(part.name, self._names):
            near = nearest(part.name, {*self._names, *(path.rpartition(".")[2] for path in self._names)}) or "."
            raise ConfigError(
                f"no recipe has a name {part.name!r}{near} Names are those of recipes, or end them behind a dot: engine is tokenizer.engine"
            )
        if any(compare(part, self._look(version.key[0], version.facts)) for version in self._versions):
            return None
        return sorted({str(value) for each in self._versions for path in meant(part.name, each.facts) for value in each.facts[path]})

    def holds(self, rule: str, version: Version) -> bool | None:
        """Whether a rule holds of the recipe of a version; `None` where it does not say."""
        if (rule, version) not in self._held:
            self._held[rule, version] = holds(parse(rule), self._look(version.key[0], version.facts))
        return self._held[rule, version]

    def could(self, rule: str, asset: str) -> bool:
        """Whether a rule may hold of a store of this asset that nobody sees, or of what it was made from."""
        above = [each.name for _, each in EVERY[asset].inputs] if asset in EVERY else []
        return self._could(parse(rule), asset) or any(self.could(rule, name) for name in above)

    def _could(self, rule: Rule, asset: str) -> bool:
        return holds(rule, self._look(asset, {"asset": (asset,)}, unseen=True)) is not False

    def _look(self, asset: str, facts: Facts, *, unseen: bool = False) -> Look:
        """What a recipe of an asset says under a name; of one that it leaves out at its default, the default, unless it is `unseen`."""
        unset = _unset().get(EVERY[asset].family if asset in EVERY else family_of_export(asset), {})

        def look(name: str) -> Values | bool | None:
            if paths := meant(name, facts) or meant(name.removeprefix("preprocessing."), facts):  # which single options of it stand without
                return tuple(value for path in paths for value in facts[path])
            could = [path for path in meant(name, self._names) if self._applies(asset, path, facts, unset)]
            if not could or unseen or {*could} - unset.keys():
                return None if could else False
            return tuple(value for path in could for value in unset[path])

        return look

    def _applies(self, asset: str, path: str, facts: Facts, unset: Facts) -> bool:
        """Whether recipes of an asset may have a name."""
        declared = EVERY.get(asset)
        if facts.get(path.rpartition(".")[0]):
            return False  # what it would be a part of is not set
        if path in ("partition", "version", "stage"):
            return path != "partition" or declared is None or declared.partitioned
        if declared is None or path in self._seen[asset] or path.startswith("tokenizer."):
            return path in self._seen[asset] or (declared is not None and "tokenizer" in declared.options)
        said = declared.depends is None and not {path, f"preprocessing.{path}"}.isdisjoint(declared.options)
        return said or (path in unset and takes(declared, path))


def reason(version: Version, recalls: Iterable[Recall], rules: Rules, well: Well) -> tuple[int, str] | None:
    """The number of the recall that concerns a version, and why: its recipe, or what it was made from; `None` without one."""
    for recall in recalls:
        if rules.holds(recall.rule, version):
            paths = {path for part in parse(recall.rule).parts for path in meant(part.name, version.facts)}
            said = (f"{path}={' '.join(map(str, version.facts[path]))[:40]}" for path in sorted(paths - {"asset", "partition"} or paths))
            return recall.number, ", ".join(said) or "by what its recipe leaves out"
        for entry in recall.found:
            key, content = (entry.asset, entry.partition), entry.content
            if (((key, content) in version.parents) or content in version.others) and not well(key, content):
                return recall.number, f"made from {label_of(*key)} {content[:CONTENT_LENGTH]}"
    return None


class Closure:
    """What a new recall and the `active` ones find among versions, with all that was made from it; `foreign` ones are elsewhere.

    Attributes:
        new: the recall, with the versions that it finds.
        found: what any of them concerns → number of the recall, and why.
        unclear: of what that cannot be told → why not.
        rules: what rules say of these versions.
    """

    def __init__(self, versions: Sequence[Version], foreign: Iterable[Version], new: Recall, active: Sequence[Recall]) -> None:
        self.new, self.found, self.unclear = new, dict[Version, tuple[int, str]](), dict[Version, str]()
        self.rules, self._keys = Rules(versions), defaultdict[str, set[Key]](set)
        self._by = defaultdict[tuple[Key, str], list[Version]](list)
        for version in versions:
            self._by[version.key, version.content].append(version)
            self._keys[version.content].add(version.key)
        left, more = [*versions, *foreign], True
        while more:  # what was found last decides of what was made from it
            self.found |= (now := {each: why for each in left if (why := reason(each, (self.new, *active), self.rules, self._well))})
            mine = [(each, self.found[each][1]) for each in versions if each in self.found and self.found[each][0] == new.number]
            entries = tuple(Entry(*each.key, each.name, each.content, each.seal, why) for each, why in mine)
            self.new, left, more = structs.replace(new, found=entries), [each for each in left if each not in now], bool(now)
        while left:
            asked = {each: "; ".join(dict.fromkeys(self._open(each))) for each in left}
            self.unclear |= (open_ones := {each: why for each, why in asked.items() if why})
            left = [each for each in left if each not in open_ones] if open_ones else []

    def _well(self, key: Key, content: str) -> bool:
        return any(version not in self.found and version not in self.unclear for version in self._by.get((key, content), ()))

    def _open(self, version: Version) -> Iterator[str]:
        """What cannot be told of a version."""
        if version.fault:
            yield version.fault
        if version.manifest and self.rules.holds(self.new.rule, version) is None:
            missing = dict.fromkeys(part.name for part in parse(self.new.rule).parts if not meant(part.name, version.facts))
            yield f"its recipe does not say {' and '.join(missing) or 'what can be compared'}"
        for key, content in (*version.parents, *((key, each) for each in version.others for key in sorted(self._keys.get(each, ())))):
            label = f"made from {label_of(*key)} {content[:CONTENT_LENGTH]}"
            if (key, content) in self._by and not self._well(key, content):
                yield f"{label}, of which it cannot be told"
            elif (key, content) not in self._by and self.rules.could(self.new.rule, key[0]):
                yield f"{label}, which is gone" if content else f"{label}of which it names no version"


@cache
def _unset() -> Mapping[str, Facts]:
    """Family → names that its recipes leave out where they are not set, with what that means."""
    return {name: {**_UNSET, **{path: (default,) for path, default in left_out(kind).items()}} for name, kind in FAMILIES.items()}
