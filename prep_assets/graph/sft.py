"""The assets of the family `sft`: the certificate of its template, tokens of each domain, and the packed table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from prep_assets.checks.of_conversations import IDENTITY, MASKED, Chats, rejected_chats
from prep_assets.checks.of_packed import packed_accounting, packed_mask, packed_mixture, packed_rows
from prep_assets.checks.of_stores import ACCOUNTING, INTEGRITY, token_rows
from prep_assets.checks.of_texts import SOURCE_TEXTS
from prep_assets.checks.rejections import rendered_chats
from prep_assets.checks.relations import derived
from prep_assets.checks.selection import SELECTION
from prep_assets.checks.sources_again import by_fields
from prep_assets.config.mask import MaskPolicy
from prep_assets.config.models import Sft
from prep_assets.data.quarantine import Quarantine
from prep_assets.errors import PrepAssetsError, TemplateError
from prep_assets.graph.raw import raw_asset, verdict_assets
from prep_assets.packing import Mixture, PackPlan, by_work, evenness, gather_rows, mix, pack, position_ids
from prep_assets.packing.plan import PerToken
from prep_assets.pipeline.asset import (
    MASKED_TOKEN_COLUMNS,
    MEDIA,
    PACKED_COLUMNS,
    TEMPLATE,
    TYPED,
    Asset,
    Check,
    FromRows,
    Store,
    Stream,
    Target,
    holds_out,
    ids_dtype,
    option_recipe,
)
from prep_assets.pipeline.conversations import conversations_of, encode_of, firsts, write_records
from prep_assets.pipeline.examples import Reading, content_digest, held_out, passed_over
from prep_assets.pipeline.media import record_files
from prep_assets.pipeline.tokens import mask_columns, tokenize_rows
from prep_assets.pipeline.workspace import Workspace
from prep_assets.proofs.certificate import check_certificate
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.samples import Sample
from prep_assets.stores.arrays import compress, cumulative_sums, fill_column, stretches, take
from prep_assets.stores.guards import Segmented, compared
from prep_assets.stores.lists import declared, list_entries
from prep_assets.stores.packed import POSITIONS, write_documents
from prep_assets.stores.published import Draft
from prep_assets.stores.shards import ATTENTION
from prep_assets.stores.table import PACKED, TOKENS, Table, open_stream
from prep_assets.stores.verification import write_json
from prep_assets.stores.writer import TableWriter
from prep_assets.text.certify import certify, policy_faults, unserved
from prep_assets.text.load_template import load_template
from prep_assets.text.template import ChatTemplate

SFT_RAW = raw_asset("sft", "Source files of instructions and chats, pinned by content hash.")
SFT_VERDICTS = verdict_assets(SFT_RAW)

# The certificate of the chat template: what it does with conversations, and by which proofs their masks hold.


def check_policy(workspace: Workspace) -> ChatTemplate:
    """The family's template.

    Raises:
        TemplateError: it cannot support what the configuration asks of it; nothing has been read yet.
    """
    family = workspace.family(Sft)
    template = workspace.template(family)
    faults = policy_faults(template, train_on_eos=family.train_on_eos, train_headers=family.train_headers)
    if family.expand == "turns" and not template.form.shows_reasoning and not unserved(template):
        faults.append(
            f"expand: turns is about reasoning, and about prompts that depend on later turns; template {template.name} writes neither. Leave it out"
        )
    if faults:
        raise TemplateError("; ".join(faults))
    return template


def _write_template(target: Target, quarantine: Quarantine) -> Draft:
    """Write down what the family's chat template does with conversations."""
    certificate = certify(target.workspace.template(target.family), target.vocabulary).as_dict()
    write_json(target.payload / "certificate.json", certificate, indent=1, ensure_ascii=False)
    return Draft({}, {})


def _policy(store: Store) -> Verdict:
    template, stored = check_policy(store.workspace), json.loads((store.directory / "certificate.json").read_bytes())
    again = certify(template, store.vocabulary)
    names = store.vocabulary.templates or ([""] if store.vocabulary.chat_template else [])
    own = [load_template(f"tokenizer:{name}", store.vocabulary) for name in names]
    verdict = check_certificate(stored, template, special=store.vocabulary.special, own=own)
    if not verdict.passed or stored == json.loads(json.dumps(again.as_dict())):
        summary = f"masks are provable by {', '.join(again.proofs)}; turns end with {again.stop_token!r}"
        return replace(verdict, summary=summary) if verdict.passed else verdict
    others = ", ".join(name for name, value in json.loads(json.dumps(again.as_dict())).items() if stored.get(name) != value)
    return Verdict(False, f"certified again, the template has other {others}", verdict.numbers, Worst("certificate.json", others))


SFT_TEMPLATE = Asset(
    name="sft_template",
    family="sft",
    description="Certificate of the chat template: what it makes of system prompts, reasoning and tools, and how masks are proven.",
    write=_write_template,
    depends=lambda workspace, _: option_recipe(workspace, workspace.family(Sft), TEMPLATE),
    options=(*TEMPLATE, *MEDIA["sft"]),
    checks=(INTEGRITY, Check("policy_supported", "The chat template supports the mask policy that the configuration asks for.", _policy)),
    kind="json",
)


# SFT tokens: instructions and chats → token ids with a loss mask, one store per domain.

MASK = (
    *MaskPolicy.model_fields,
    "special_in_content",
    "truncation",
    "truncation_keeps_stop",
    "truncation_keeps",
)
"""Options that decide the loss mask."""


def _write_tokens(target: Target, quarantine: Quarantine) -> Draft:
    """Render, tokenize and mask one domain."""
    check_policy(target.workspace)
    record_files()(target.workspace, target.family).ids()  # an invalid token of files raises before a record is read
    masks = {"loss_mask": "uint8", **target.needed}
    counts = tokenize_rows(target, quarantine, partial(encode_chats, masks=masks), masks)
    metrics = {"trained_fraction": counts["trained_tokens"] / max(1, counts["tokens"])}
    return Draft(counts, metrics)


def encode_chats(
    workspace: Workspace, reading: Reading, writers: Sequence[TableWriter], quarantine: Quarantine, *, masks: Mapping[str, str]
) -> dict[str, Any]:
    """Render, tokenize, mask and write a domain, or a part of one; see `Encode`.

    Args:
        masks: the masks that writers take beside the tokens, and their dtypes.

    Raises:
        NeedsMore: they cannot hold the weights.
    """
    family = workspace.family(Sft)
    # its probes show the ends of turns first, or a refusal's reason could depend on the rows that a process read
    certify(workspace.template(family))
    counts = {"read": 0, "kept": 0, "tokens": 0, "trained_tokens": 0, "kept_dev": 0}
    conversations = conversations_of(workspace, reading.domain, quarantine)
    images = examples = cut_away = 0
    entries = Counter[str]()
    for items, in_test in reading.examples("tokenize", quarantine, plain=True):
        kept, encoded, lists = encode_of(conversations, reading.domain, items)
        arrays = {"tokens": encoded.ids, **mask_columns(encoded.loss, masks)}
        trained = int(np.count_nonzero(arrays["loss_mask"]))
        to_dev = np.full(len(kept), in_test)
        if family.test_fraction > 0 and not in_test:
            to_dev = np.array([held_out(content_digest(item.record), family.test_fraction) for item in kept], bool)
        for split, writer in enumerate(writers):
            write_records(writer, encoded, kept, to_dev == bool(split), arrays, conversations.files, lists)
        first = firsts(kept) if family.expand == "turns" else np.ones(len(kept), bool)
        counts["kept"] += int(np.count_nonzero(first))
        counts["kept_dev"] += int((to_dev & first).sum())
        examples += len(kept)
        counts["tokens"] += len(encoded.ids)
        counts["trained_tokens"] += trained
        images += len(encoded.images)
        cut_away += int(encoded.taken.sum())
        entries.update({f"{name}_entries": int(each.counts.sum()) for name, each in lists.items()})
    counts["read"] = reading.read
    counts["control_tokens_in_content"] = conversations.control_tokens
    if family.expand == "turns":
        counts["examples"] = examples
    if conversations.reasoning_left_out:
        counts["reasoning_dropped_by_template"] = conversations.reasoning_left_out
    if conversations.unserved_prompts:
        counts["unserved_prompts"] = conversations.unserved_prompts
    if cut_away:
        counts["tokens_cut_away"] = cut_away
    counts |= {name: count for name, count in entries.items() if count}
    if images or conversations.images_cut_away:
        counts |= {"images": images, "images_cut_away": conversations.images_cut_away}
    return {**counts, **conversations.tokenized.counts, **passed_over(reading)}


SFT_TOKENS = Asset(
    name="sft_tokens",
    family="sft",
    description="""Token ids and loss mask of every conversation, one store per domain.

Each conversation is rendered once by the chat template and tokenized once; the mask follows from where its regions stand in the render.""",
    write=_write_tokens,
    promises=("ids inside the vocabulary", "every record has a trained token"),
    inputs=(("raw", SFT_RAW), *SFT_VERDICTS.items()),
    partitioned=True,
    options=(
        *TEMPLATE,
        *TYPED,
        "expand",
        *MEDIA["sft"],
        *MASK,
        "preprocessing",
        "test_fraction",
        "output.dtype",
        "output.max_tokens_per_shard",
    ),
    checks=(
        INTEGRITY,
        ACCOUNTING,
        Check(
            "row_integrity",
            "Ids are inside the vocabulary, mask and tokens are equally long, every record trains something.",
            token_rows,
        ),
        derived("mask_alignment", MASKED, Chats),
        derived("tokenization_identity", IDENTITY, Chats),
        *(lists.check() for lists in declared().values()),
        SELECTION,
        SOURCE_TEXTS,
    ),
    in_parts=True,
    streams={split: Stream(TOKENS, split, masked=True) for split in ("train", "dev")},
    source=FromRows(Sample, rejected_chats, by_fields, rendered=rendered_chats),
    columns=MASKED_TOKEN_COLUMNS,
)


# SFT packing: the tokens of all domains, mixed and packed into rows of one length.

BLOCK = 1 << 22
"""Tokens of the rows that are made at a time, unless one row alone has more: so many that few pages of the tokens are read for one row alone."""


def _depends_packed(workspace: Workspace, _: str) -> dict[str, Any]:
    """What the packed table depends on."""
    family = workspace.family(Sft)
    return {
        "packing": family.packing.model_dump(),
        "storage_format": family.output.storage_format,
        "dtype": family.output.dtype,
        # an h5 table is one file
        **({"max_tokens_per_shard": family.output.max_tokens_per_shard} if family.output.storage_format == "bin" else {}),
        "pad_id": workspace.vocabulary(family).pad_id,
    }


def _tables(family: Sft) -> dict[str, tuple[str, list[str]]]:
    """Table → the split that it packs, and the domains that have it: `sft_packed`, and `sft_dev_packed` where anything is held out."""
    names = sorted(family.domains)
    held = [name for name in names if holds_out(family, [name])]
    return {"sft_packed": ("train", names), **({"sft_dev_packed": ("dev", held)} if held else {})}


def _write_packed(target: Target, quarantine: Quarantine) -> Draft:
    """Mix all domains and pack them into rows."""
    counts: dict[str, Any] = {}
    metrics: dict[str, Any] = {}
    for table, (split, domains) in _tables(target.family).items():
        table_counts, measured = _write_table(target, table, split, domains)
        prefix = "" if table == "sft_packed" else "dev_"
        counts |= {prefix + key: value for key, value in table_counts.items()}
        metrics |= {prefix + key: value for key, value in measured.items()}
    return Draft(counts, metrics)


def _write_table(target: Target, table: str, split: str, domains: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    options, workspace = target.family.packing, target.workspace
    stores = {name: open_stream(workspace.built(SFT_TOKENS.name, name).directory, split) for name in domains}
    chosen = {"weights": options.weights, "epochs": options.epochs, "max_items": options.max_items} if split == "train" else {}
    mixture = mix({name: store.lengths for name, store in stores.items()}, seed=options.seed, shuffle=options.shuffle, **chosen)
    overlong = {} if options.strategy in ("concat", "bfd_split") else {"overlong": options.overlong}
    plan = pack(
        mixture.lengths,
        options.row_len,
        options.strategy,
        tail=options.tail,
        buckets=options.buckets or (),
        align=options.multiple,
        **overlong,
    )
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
    if options.balance is not None:
        plan = by_work(plan, options.balance, options.seed if options.shuffle else None)
    trained = _write_rows(target, table, plan, ordered, starts, loss, attention)
    fields = {name: getattr(plan, name) for name in ("row", "row_offset", "length", "start")}
    fields |= {"source": take(mixture.domain, plan.record), "record": take(mixture.record, plan.record)}
    write_documents(target.payload, table, fields, mixture.domains, options.row_len, plan.align)
    images = record_files().write_packed(target.payload, table, plan, mixture, ordered)
    left_out = int(plan.dropped[:, 2].sum())
    counts = {
        "rows": plan.rows,
        "records": len(mixture.lengths),
        "tokens": plan.used,
        "trained_tokens": trained,
        "tokens_left_out": left_out,
        "tokens_in_untrained_rows": untrained,
        **({} if options.align is None else {"places_for_alignment": int(plan.rooms.sum()) - plan.used}),
        **{f"{name}_entries_left_out": count for name, count in list_entries(each.lists for each in ordered).items() if count},
        **images,
    }
    # of the rows, not of what was offered: packing may leave tokens out
    source, length = fields["source"], plan.length
    used = sum(
        (np.bincount(source[part], length[part], len(mixture.domains)) for part in stretches(len(source))), np.zeros(len(mixture.domains))
    )
    shares = {f"share_{name}": float(tokens) / max(1, plan.used) for name, tokens in zip(mixture.domains, used, strict=True)}
    even = {} if options.balance is None else {"work_evenness": evenness(plan, options.balance)}
    return counts, {"fill_rate": plan.fill, "trained_fraction": trained / max(1, plan.used), **even, **shares}


def _attention(stores: Sequence[Table]) -> PerToken | None:
    """The attention masks of several stores as one; `None` where all tokens of all are attended."""
    return _end_to_end(stores, ATTENTION) if any(ATTENTION in store.columns for store in stores) else None


def _end_to_end(stores: Sequence[Table], key: str) -> PerToken:
    """A per-token array of several stores as one; ones for a store that has none."""
    ones = np.ones(1, np.uint8)
    arrays: list[PerToken] = [
        compared(store.columns[key].values) if key in store.columns else np.broadcast_to(ones, len(store.columns["tokens"].values))
        for store in stores
    ]
    if len(arrays) == 1:
        return arrays[0]
    joined = Segmented(arrays)
    # one domain may hold whole weights as uint8 and another fractions as float32: rows take the type that holds both
    joined.dtype = np.result_type(*(array.dtype for array in arrays))
    return joined


def _record_starts(mixture: Mixture, stores: list[Table]) -> npt.NDArray[np.int64]:
    """Where each record of the mixture starts in the domains' token streams laid end to end."""
    base = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(store.columns["tokens"].values) for store in stores])])

    def begins(part: slice) -> npt.NDArray[np.int64]:
        starts_of_part = base[mixture.domain[part]]
        for number, store in enumerate(stores):
            in_store = np.flatnonzero(mixture.domain[part] == number)
            record = mixture.record[part][in_store]
            starts_of_part[in_store] += np.where(record > 0, store.columns["tokens"].ends[record - 1], 0)
        return starts_of_part

    return fill_column(len(mixture.record), begins)


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
    member = fill_column(len(plan.row), lambda part: keep[plan.row[part]], bool)
    kept_pieces, dropped_pieces = compress(member), compress(~member)
    untrained = np.stack([plan.record[dropped_pieces], plan.start[dropped_pieces], plan.length[dropped_pieces]], axis=1)
    dropped = np.concatenate([plan.dropped, untrained])
    dropped = dropped[np.lexsort((dropped[:, 1], dropped[:, 0]))]
    number = cumulative_sums(keep)
    renumbered = fill_column(len(kept_pieces), lambda part: number[plan.row[kept_pieces[part]]] - 1)
    record, start, length, row_offset = (take(column, kept_pieces) for column in (plan.record, plan.start, plan.length, plan.row_offset))
    kept = PackPlan(plan.row_len, int(keep.sum()), renumbered, record, start, length, row_offset, dropped, plan.align)
    return kept, int(untrained[:, 2].sum())


def _blocks(plan: PackPlan) -> Iterator[slice]:
    """All rows, some at a time."""
    step = max(1, BLOCK // plan.row_len)
    return (slice(first, min(first + step, plan.rows)) for first in range(0, plan.rows, step))


def _write_rows(
    target: Target,
    table: str,
    plan: PackPlan,
    stores: list[Table],
    starts: npt.NDArray[np.int64],
    loss: PerToken,
    attention: PerToken | None,
) -> int:
    family, workspace, payload = target.family, target.workspace, target.payload
    vocabulary, output = target.vocabulary, family.output
    tokens = _end_to_end(stores, "tokens")
    pad, trained = vocabulary.pad_id, 0
    dtypes = {"tokens": ids_dtype(family, vocabulary), "loss_mask": "float32" if loss.dtype.kind == "f" else "int8"}
    dtypes |= {POSITIONS: "int32"} if output.storage_format == "bin" else {}
    dtypes |= {ATTENTION: "uint8"} if attention is not None else {}
    shape, shard = (plan.rows, plan.row_len), output.max_tokens_per_shard
    with TableWriter(payload, table, PACKED, dtypes, storage=output.storage_format, rows=shape, max_tokens_per_shard=shard) as writer:
        for rows in _blocks(plan):
            mask = gather_rows(loss, starts, plan, rows, fill=0)
            ids = gather_rows(tokens, starts, plan, rows, fill=pad)
            positions = {POSITIONS: position_ids(plan, rows, "doc_reset")} if output.storage_format == "bin" else {}
            attended = {} if attention is None else {ATTENTION: gather_rows(attention, starts, plan, rows, fill=0)}
            writer.append({"tokens": ids, "loss_mask": mask, **positions, **attended})
            trained += int(np.count_nonzero(mask != 0))
            if workspace.progress:
                workspace.progress(f"pack {table}", rows.stop, plan.rows)
    return trained


SFT_PACKED = Asset(
    name="sft_packed",
    family="sft",
    description="""All domains mixed and packed into rows of one length, tokens and loss mask aligned.

Trainers read `sft_packed.h5` (datasets `tokens` and `loss_mask`, both (N, row_len)); `sft_packed.documents` says which record is where.""",
    write=_write_packed,
    promises=("every token of every record is in a row or counted as left out", "every row has a trained token"),
    inputs=(("tokens", SFT_TOKENS),),
    depends=_depends_packed,
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
    streams={name: Stream(PACKED, name) for name in ("sft_packed", "sft_dev_packed")},
    kind="hdf5",
    columns=PACKED_COLUMNS,
)


ASSETS = (
    SFT_RAW,
    *SFT_VERDICTS.values(),
    SFT_TEMPLATE,
    SFT_TOKENS,
    SFT_PACKED,
)
