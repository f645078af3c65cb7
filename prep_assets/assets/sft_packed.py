"""SFT packing: the tokens of all domains, mixed and packed into rows of one length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.assets.checks.every_store import INTEGRITY
from prep_assets.assets.checks.packed import packed_accounting, packed_mask, packed_mixture, packed_rows
from prep_assets.assets.columns import PACKED as COLUMNS
from prep_assets.assets.commands import build_command
from prep_assets.assets.previews import packed_preview
from prep_assets.assets.sft_tokens import splits
from prep_assets.assets.stage import Asset, Check, Stream
from prep_assets.assets.versions import SFT as VERSION
from prep_assets.assets.workspace import Workspace
from prep_assets.assets.writing.images import stored_image_id
from prep_assets.assets.writing.packed_images import write_images
from prep_assets.assets.writing.tokens import ids_dtype
from prep_assets.config.models import Sft
from prep_assets.disk.columns import at, made, sizes, stretches, sums, where
from prep_assets.errors import PrepAssetsError, StoreError
from prep_assets.packing import Mixture, PackPlan, gather_rows, mix, pack, position_ids
from prep_assets.packing.plan import PerToken
from prep_assets.proofs.images import check_images
from prep_assets.stores.guards import compared
from prep_assets.stores.packed import PackedStore, PackedWriter, open_packed, write_documents
from prep_assets.stores.published import Draft, open_published
from prep_assets.stores.shards import Segmented
from prep_assets.stores.tokens import ATTENTION, TokenStore, open_tokens

TOKENS = "sft_tokens"
BLOCK = 1 << 22
"""Tokens of the rows that are made at a time, unless one row alone has more: so many that few pages of the tokens are read for one row alone."""


def _depends(workspace: Workspace, _: str) -> dict[str, Any]:
    """What the packed table depends on. Domains are sorted, so their order in the configuration does not matter."""
    family = workspace.family(Sft)
    return {
        "tokens": {name: workspace.content(TOKENS, name) for name in sorted(family.domains)},
        "packing": family.packing.model_dump(),
        "storage_format": family.output.storage_format,
        "dtype": family.output.dtype,
        # an h5 table is one file
        **({"max_tokens_per_shard": family.output.max_tokens_per_shard} if family.output.storage_format == "bin" else {}),
        "pad_id": workspace.vocabulary(family).pad_id,
    }


def _tables(workspace: Workspace) -> dict[str, tuple[str, list[str]]]:
    """Table → the split that it packs, and the domains that have it: `sft_packed`, and `sft_dev_packed` where anything is held out."""
    names = sorted(workspace.family(Sft).domains)
    held = [name for name in names if len(splits(workspace, name)) > 1]
    return {"sft_packed": ("train", names), **({"sft_dev_packed": ("dev", held)} if held else {})}


def _write(workspace: Workspace, _: str, payload: Path, quarantine: Path) -> Draft:
    """Mix all domains and pack them into rows."""
    counts: dict[str, Any] = {}
    metrics: dict[str, Any] = {}
    for table, (split, domains) in _tables(workspace).items():
        found, measured = _write_table(workspace, table, split, domains, payload)
        prefix = "" if table == "sft_packed" else "dev_"
        counts |= {prefix + key: value for key, value in found.items()}
        metrics |= {prefix + key: value for key, value in measured.items()}
    return Draft(counts, metrics, ("every token of every record is in a row or counted as left out", "every row has a trained token"))


def _audit(workspace: Workspace, _: str, payload: Path) -> None:
    image, rule = stored_image_id(workspace, workspace.family(Sft)), workspace.image_rule(workspace.family(Sft))
    for table in _tables(workspace):
        for start, _rows, mask in open_packed(payload, table).blocks():
            if not (mask != 0).any(axis=1).all():
                raise StoreError(f"{table}: row {start + int((mask == 0).all(axis=1).argmax()):,} has no trained token")
        if image is not None and not (verdict := check_images(open_packed(payload, table), image, rule)).passed:
            raise StoreError(f"{table}: {verdict.summary}")


def _write_table(workspace: Workspace, table: str, split: str, domains: list[str], payload: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    family = workspace.family(Sft)
    options = family.packing
    stores = {
        name: open_tokens(open_published(workspace.stores, TOKENS, name, remedy=build_command(TOKENS, name)).directory, split)
        for name in domains
    }
    mixture = mix(
        {name: sizes(store.ends) for name, store in stores.items()},
        weights=options.weights if split == "train" else None,
        epochs=options.epochs if split == "train" else None,
        max_items=options.max_items if split == "train" else None,
        seed=options.seed,
        shuffle=options.shuffle,
    )
    overlong = {} if options.strategy in ("concat", "bfd_split") else {"overlong": options.overlong}
    plan = pack(mixture.lengths, options.row_len, options.strategy, tail=options.tail, **overlong)
    plan.check(mixture.lengths)
    ordered = [stores[name] for name in mixture.domains]
    starts = _record_starts(mixture, ordered)
    loss, attention = _end_to_end(ordered, "loss_mask"), _attention(ordered)
    plan, untrained = _without_untrained_rows(plan, loss, starts, mixture.lengths)
    if not plan.rows and (split == "train" or len(mixture.lengths)):
        raise PrepAssetsError(
            f"no row of {table} is left of {len(mixture.lengths):,} {split} records with {int(mixture.lengths.sum()):,} tokens: {untrained:,} "
            f"are in rows of {options.row_len:,} without a trained token, the others left out by packing.tail or packing.overlong. "
            "Change row_len, tail or overlong, or hold out another share"
        )
    trained = _write_rows(workspace, table, plan, ordered, starts, loss, attention, payload)
    fields = {name: getattr(plan, name) for name in ("row", "row_offset", "length", "start")}
    fields |= {"source": at(mixture.domain, plan.record), "record": at(mixture.record, plan.record)}
    write_documents(payload, table, fields, mixture.domains, options.row_len)
    images = write_images(payload, table, plan, mixture, ordered)
    left_out = int(plan.dropped[:, 2].sum())
    counts = {
        "rows": plan.rows,
        "records": len(mixture.lengths),
        "tokens": plan.used,
        "trained_tokens": trained,
        "tokens_left_out": left_out,
        "tokens_in_untrained_rows": untrained,
        **images,
    }
    # of the rows, not of what was offered: packing may leave tokens out
    source, length = fields["source"], plan.length
    used = sum(
        (np.bincount(source[part], length[part], len(mixture.domains)) for part in stretches(len(source))), np.zeros(len(mixture.domains))
    )
    shares = {f"share_{name}": float(tokens) / max(1, plan.used) for name, tokens in zip(mixture.domains, used, strict=True)}
    return counts, {"fill_rate": plan.fill, "trained_fraction": trained / max(1, plan.used), **shares}


def _attention(stores: Sequence[TokenStore]) -> PerToken | None:
    """The attention masks of several stores as one; `None` where all tokens of all are attended."""
    return _end_to_end(stores, ATTENTION) if any(ATTENTION in store.arrays for store in stores) else None


def _end_to_end(stores: Sequence[TokenStore], key: str) -> PerToken:
    """A per-token array of several stores as one; ones for a store that has none."""
    ones = np.ones(1, np.uint8)
    arrays: list[PerToken] = [
        compared(store.arrays[key]) if key in store.arrays else np.broadcast_to(ones, store.tokens) for store in stores
    ]
    if len(arrays) == 1:
        return arrays[0]
    joined = Segmented(arrays)
    # one domain may hold whole weights as uint8 and another fractions as float32: rows take the type that holds both
    joined.dtype = np.result_type(*(array.dtype for array in arrays))
    return joined


def _record_starts(mixture: Mixture, stores: list[TokenStore]) -> npt.NDArray[np.int64]:
    """Where each record of the mixture starts in the domains' token streams laid end to end."""
    base = np.concatenate([np.zeros(1, np.int64), np.cumsum([store.tokens for store in stores])])

    def begins(part: slice) -> npt.NDArray[np.int64]:
        found = base[mixture.domain[part]]
        for number, store in enumerate(stores):
            here = np.flatnonzero(mixture.domain[part] == number)
            record = mixture.record[part][here]
            found[here] += np.where(record > 0, store.ends[record - 1], 0)
        return found

    return made(len(mixture.record), begins)


def _without_untrained_rows(
    plan: PackPlan, loss: PerToken, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> tuple[PackPlan, int]:
    """The plan without rows that carry no loss (a long prompt can fill one), and how many tokens those held. They are in `dropped`."""
    keep = np.zeros(plan.rows, bool)
    for rows in _blocks(plan):
        members = plan.members(rows)
        whole = plan.length[members] == lengths[plan.record[members]]
        keep[plan.row[members][whole]] = True  # a whole record has a trained token
        if not keep[rows].all():
            keep[rows] = (gather_rows(loss, starts, plan, rows, fill=0) != 0).any(axis=1)
    if keep.all():
        return plan, 0
    member = made(len(plan.row), lambda part: keep[plan.row[part]], bool)
    left, out = where(member), where(~member)
    gone = np.stack([plan.record[out], plan.start[out], plan.length[out]], axis=1)
    dropped = np.concatenate([plan.dropped, gone])
    dropped = dropped[np.lexsort((dropped[:, 1], dropped[:, 0]))]
    number = sums(keep)
    renumbered = made(len(left), lambda part: number[plan.row[left[part]]] - 1)
    record, start, length, row_offset = (at(column, left) for column in (plan.record, plan.start, plan.length, plan.row_offset))
    kept = PackPlan(plan.row_len, int(keep.sum()), renumbered, record, start, length, row_offset, dropped)
    return kept, int(gone[:, 2].sum())


def _blocks(plan: PackPlan) -> Iterator[slice]:
    """All rows, some at a time."""
    step = max(1, BLOCK // plan.row_len)
    return (slice(first, min(first + step, plan.rows)) for first in range(0, plan.rows, step))


def _write_rows(
    workspace: Workspace,
    table: str,
    plan: PackPlan,
    stores: list[TokenStore],
    starts: npt.NDArray[np.int64],
    loss: PerToken,
    attention: PerToken | None,
    payload: Path,
) -> int:
    family = workspace.family(Sft)
    vocabulary, output = workspace.vocabulary(family), family.output
    tokens = _end_to_end(stores, "tokens")
    pad, trained = vocabulary.pad_id, 0
    loss_dtype = "float32" if loss.dtype.kind == "f" else "int8"
    options: dict[str, Any] = {"dtype": ids_dtype(family, vocabulary), "loss_dtype": loss_dtype, "attention": attention is not None}
    shard = output.max_tokens_per_shard
    with PackedWriter(output.storage_format, payload, table, plan.rows, plan.row_len, **options, max_tokens_per_shard=shard) as writer:
        for rows in _blocks(plan):
            mask = gather_rows(loss, starts, plan, rows, fill=0)
            ids = gather_rows(tokens, starts, plan, rows, fill=pad)
            positions = {"position_ids": position_ids(plan, rows, "doc_reset")} if output.storage_format == "bin" else {}
            attended = {} if attention is None else {ATTENTION: gather_rows(attention, starts, plan, rows, fill=0)}
            writer.append({"tokens": ids, "loss_mask": mask, **positions, **attended})
            trained += int(np.count_nonzero(mask != 0))
            if workspace.progress:
                workspace.progress(f"pack {table}", rows.stop, plan.rows)
    return trained


ASSET = Asset(
    name="sft_packed",
    family="sft",
    description="""All domains mixed and packed into rows of one length, tokens and loss mask aligned.

Trainers read `sft_packed.h5` (datasets `tokens` and `loss_mask`, both (N, row_len)); `sft_packed.documents` says which record is where.""",
    version=VERSION,
    depends=_depends,
    write=_write,
    audit=_audit,
    upstream=(TOKENS,),
    options=("packing", "output"),
    checks=(
        INTEGRITY,
        Check("accounting", "Every token of every domain is in a row or counted as left out.", packed_accounting),
        Check("row_integrity", "Rows have one length, borders add up, padding is untrained, every row trains something.", packed_rows),
        Check(
            "mask_alignment", "Every packed token and mask value is that of its record, whose mask is proven in sft_tokens.", packed_mask
        ),
        Check(
            "mixture",
            "Every record that the packing options ask for is in the rows, whole and as often as they ask, or left out for a reason that holds.",
            packed_mixture,
        ),
    ),
    preview=packed_preview,
    streams={name: Stream(PackedStore, name) for name in ("sft_packed", "sft_dev_packed")},
    kind="hdf5",
    columns=COLUMNS,
)
