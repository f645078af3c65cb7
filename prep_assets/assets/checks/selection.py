"""`selection`: every row of the sources is stored where it belongs, or refused for a reason that holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from prep_assets.assets import preferences as preference
from prep_assets.assets import rl_groups
from prep_assets.assets import rl_prompts as rl
from prep_assets.assets.checks.alone import alone, line_alone
from prep_assets.assets.checks.every_store import family_of, open_streams
from prep_assets.assets.checks.expected import shown_text
from prep_assets.assets.checks.second_source import Second
from prep_assets.assets.reading.examples import converter
from prep_assets.assets.reading.rl_domains import group_domains, prompt_domains
from prep_assets.assets.workspace import Workspace
from prep_assets.config.image_token import image_placeholder
from prep_assets.config.models import Family, Pretrain, Rl
from prep_assets.proofs.held_out import canonical_json, is_held_out
from prep_assets.proofs.ledger import Ledger, Refusals, Stored, places
from prep_assets.proofs.selection import Rules, select
from prep_assets.proofs.source_rows import read_rows
from prep_assets.proofs.verdict import Verdict
from prep_assets.records.quarantine import read_quarantine
from prep_assets.samples import Group, Prompt, Sample
from prep_assets.schemas.registry import apply
from prep_assets.stores.groups import open_groups
from prep_assets.stores.lines import open_lines
from prep_assets.stores.published import Published, open_published

Part = tuple[bool, Any, Any, Any, Any]
"""A part of a store: whether it is held out; domain number, file and row of its records, and what `Stored.belongs` is (or `None`)."""


def selection(workspace: Workspace, published: Published) -> Verdict:
    """Go through every domain of a store that is made from sources."""
    family, asset = family_of(workspace, published), published.manifest.asset
    names, parts = domain_names(family, published), list(_parts(family, published))
    ledger = Ledger(refusals_of(published), getattr(family, "test_fraction", 0.0))
    for number, name in enumerate(names):
        second = Second.of(workspace, type(family), asset, name)
        rules = second.rules(deduplicate=family.preprocessing.deduplicate, limit=getattr(family, "max_per_source", None))
        blocks = select(second.rows(), rules)
        again = alone(workspace, type(family), published, second)
        ledger.domain(blocks, _stored(parts, number), second.names, second.held_out, content_of(family, asset, second), again)
    return ledger.verdict()


SOURCED = ("pretrain_tokens", "sft_tokens", preference.PAIRS, rl.PROMPTS, rl_groups.GROUPS)
"""The stores that are made from sources."""
LINES = {
    "preference_tokens": ((preference.PAIRS, preference.TRAIN, "chosen"),),
    "rl_tokens": ((rl.PROMPTS, rl.TRAIN, "prompts"), (rl.ARITHMETIC, rl.ARITHMETIC, "arithmetic")),
}
"""The stores whose lines other stores tokenize: asset, file, and the stream that they go to."""


def line_selection(workspace: Workspace, published: Published) -> Verdict:
    """Go through the lines that a store's tokens are made from."""
    ledger, streams = Ledger(refusals_of(published), 0.0), open_streams(published)
    for asset, name, stream in LINES[published.manifest.asset]:
        path = open_published(workspace.stores, asset).directory / f"{name}.jsonl"
        with path.open("rb") as file:
            blocks = select([(0, False, read_rows(file, "jsonl", None))], Rules(deduplicate=False))
            place = places(0, streams[stream].row)
            stored = Stored.of(place, np.zeros(len(place), bool))
            ledger.domain(blocks, stored, [path.name], [False], canonical_json, line_alone(workspace, published))
    return ledger.verdict()


def refusals_of(published: Published) -> Refusals:
    """The quarantine of a store, in columns."""
    lines = read_quarantine(published.quarantine) if published.quarantine else ()
    return Refusals((line.id, f"{line.stage}/{line.reason}") for line in lines)


def domain_names(family: Family, published: Published) -> Sequence[str]:
    """The domains that a store is made from, in the order in which it numbers them."""
    if published.manifest.partition:
        return [published.manifest.partition]
    if not isinstance(family, Rl):
        return sorted(family.domains)
    return group_domains(family) if published.manifest.asset == rl_groups.GROUPS else prompt_domains(family)


def _parts(family: Family, published: Published) -> Iterator[Part]:
    asset = published.manifest.asset
    if asset == rl_groups.GROUPS:
        for split, folder in rl_groups.splits(published).items():
            store = open_groups(folder)
            yield split == rl_groups.TEST, store.source, store.prompts.file, store.prompts.row, None
    elif asset in (preference.PAIRS, rl.PROMPTS):
        for path in sorted(published.directory.glob("*.jsonl")):
            lines = open_lines(published.directory, path.stem)
            fraction = getattr(family, "test_fraction", 0.0)
            held = np.array([_held_out(line["prompt"], fraction, asset == rl.PROMPTS) for line in lines], np.int8)
            yield path.stem.endswith("_test"), lines.index["source"], lines.index["file"], lines.index["row"], held
    else:
        for name, stream in open_streams(published).items():
            several = published.manifest.recipe.get("expand") == "turns"
            one = stream.begins_row if several else np.ones(len(stream), bool)
            yield name.endswith("dev"), np.zeros(int(one.sum()), np.int32), stream.file[one], stream.row[one], None


def stored_of(family: Family, published: Published, number: int) -> Stored:
    """The records of one domain of a store."""
    return _stored(list(_parts(family, published)), number)


def _stored(parts: Sequence[Part], number: int) -> Stored:
    """The records of one domain, over all parts of a store."""
    mine = [(held, np.asarray(source) == number, file, row, belongs) for held, source, file, row, belongs in parts]
    place = np.concatenate([places(np.asarray(file)[here], np.asarray(row)[here]) for _, here, file, row, _ in mine])
    held_out = np.concatenate([np.full(int(here.sum()), held) for held, here, *_ in mine])
    unknown = [np.full(int(here.sum()), -1, np.int8) if belongs is None else belongs[here] for _, here, _, _, belongs in mine]
    return Stored.of(place, held_out, np.concatenate(unknown))


def _held_out(prompt: Any, fraction: float, plain: bool) -> int:
    """What `Stored.belongs` is. Prompts of RL are known by their plain form, whatever the form of the file."""
    if plain and not isinstance(prompt, str):
        if any(message.keys() != {"role", "content"} for message in prompt):
            return -1
        prompt = prompt[0]["content"] if [message["role"] for message in prompt] == ["user"] else prompt
    return int(fraction > 0 and is_held_out(prompt_json(prompt), fraction))


def prompt_json(prompt: Any) -> bytes:
    """What decides whether a prompt is held out: its JSON, keys in the order in which they stand."""
    return json.dumps(prompt, ensure_ascii=False, separators=(",", ":")).encode()


def content_of(family: Family, asset: str, second: Second) -> Callable[[Mapping[str, Any]], bytes]:
    """What decides about a row where the record itself does not say: its text, its prompt, or all of its fields."""
    if isinstance(family, Rl):
        example = converter(second.domain, Group if asset == rl_groups.GROUPS else Prompt)
        return lambda payload: prompt_json(_prompt_of(apply(example, payload)))
    if isinstance(family, Pretrain):
        document = converter(second.domain, Sample)
        image = image_placeholder(family) or ""
        return lambda payload: _text_of(apply(document, payload), image).encode()
    return canonical_json


def _prompt_of(example: object) -> Any:
    assert isinstance(example, Group | Prompt)
    messages = [{"role": turn.role, "content": turn.text} for turn in example.prompt]
    return messages[0]["content"] if [turn.role for turn in example.prompt] == ["user"] else messages


def _text_of(document: object, image: str) -> str:
    assert isinstance(document, Sample)
    return "".join(shown_text(turn, image) for turn in document.turns)
