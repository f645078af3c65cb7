"""Whether the text of a record is in a store: looked for in what the store says, not in its indexes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from prep_assets.assets.graph import asset_named
from prep_assets.assets.reading.contamination import strings_in
from prep_assets.assets.reading.examples import converter
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import FAMILIES
from prep_assets.errors import ConfigError, Refused
from prep_assets.lineage.contents import Held, contents, has_records
from prep_assets.lineage.where import Whereabouts
from prep_assets.records.quarantine import read_quarantine
from prep_assets.samples import IMAGE, TOOL_CALL, Contrast, Example, Group, Pair, Prompt, Sample, Turn
from prep_assets.schemas.registry import apply
from prep_assets.stores.published import Published

SHORTEST = 4
"""Characters of a text that is looked for; shorter ones stand in every store."""
BATCH = 512


def needles_of(workspace: Workspace, found: Whereabouts) -> list[tuple[str, ...]]:
    """What a store that holds a record says: sets of texts, of which one must be there whole. The row's own strings, as a line or a quarantine has
    them; and the words of its turns, as they are rendered: a prompt with each of its answers."""
    domain = workspace.family(FAMILIES[found.family]).domains[found.domain]
    sets = [_long(strings_in(found.payload))]
    for form in (Sample, Pair, Prompt, Group):
        with suppress(Refused, ConfigError):
            example = apply(converter(domain, form), found.payload)  # type: ignore[arg-type]
            sets += [_long(_words(turns)) for turns in _conversations(example)]
            break
    return list(dict.fromkeys(each for each in sets if each))


def _conversations(example: Example) -> list[tuple[Turn, ...]]:
    match example:
        case Sample():
            return [example.turns]
        case Pair():
            return [(*example.prompt, *example.chosen), (*example.prompt, *example.rejected)]
        case Contrast():
            return []
        case Prompt():
            return [example.prompt]
        case Group():
            return [(*example.prompt, *response) for response in example.responses]


def _words(turns: Sequence[Turn]) -> Iterator[str]:
    """The texts of regions that a template writes as they are."""
    return (region.text for turn in turns for region in turn.regions if region.kind not in (IMAGE, TOOL_CALL) and not region.drop)


def _long(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text.strip() for text in texts if len(text.strip()) >= SHORTEST))


def records_with(workspace: Workspace, published: Published, sets: Sequence[Sequence[str]]) -> list[str]:
    """Ids of the records of a version whose text holds all texts of one of the sets; tokens are decoded, lines are read, the quarantine is searched."""
    found = []
    if has_records(published) and sets:
        batch: list[Held] = []
        for held in contents(workspace, published):
            batch.append(held)
            if len(batch) == BATCH:
                found += _holding(workspace, published, batch, sets)
                batch = []
        found += _holding(workspace, published, batch, sets)
    for refusal in read_quarantine(published.quarantine) if published.quarantine and sets else ():
        if any(all(text in refusal.payload or _as_json(text) in refusal.payload for text in texts) for texts in sets):
            found.append(f"{refusal.id} in quarantine")
    return found


def _holding(workspace: Workspace, published: Published, batch: Sequence[Held], sets: Sequence[Sequence[str]]) -> list[str]:
    lines = [held for held in batch if not len(held.ids)]
    found = [held for held in lines if _has(" ".join(strings_in(json.loads(held.line))), sets)]
    encoded = [held for held in batch if len(held.ids)]
    if encoded:
        vocabulary = workspace.vocabulary(workspace.family(FAMILIES[asset_named(published.manifest.asset, workspace).family]))
        decoded = vocabulary.decode_batch([held.ids.tolist() for held in encoded])
        found += [held for held, text in zip(encoded, decoded, strict=True) if _has(text, sets)]
    return [f"{held.domain}#{held.id}" for held in found]


def _has(text: str, sets: Sequence[Sequence[str]]) -> bool:
    return any(all(each in text for each in texts) for texts in sets)


def _as_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
