"""`source_texts`: the texts of source rows, looked for in what a store decodes to, or in its lines."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prep_assets.checks.relations import Compares, Derivation, Judge, derived, is_small
from prep_assets.checks.sources_again import StoredRows, as_example, byte_table, domain_source, reading_of, streams_of
from prep_assets.config.family import Chat
from prep_assets.config.models import FAMILIES
from prep_assets.pipeline.asset import FromLines, Store
from prep_assets.pipeline.examples import converter
from prep_assets.proofs.derive import MaskOptions
from prep_assets.proofs.mask import Truncation, puts_spaces, solid
from prep_assets.proofs.plain_reading import ReadRows
from prep_assets.proofs.rebuilt import sorts_arguments
from prep_assets.proofs.sampled import SELDOM, Sampled
from prep_assets.proofs.second_reading import typed_tokens
from prep_assets.proofs.source_fields import OFFERED, Unlike, is_wrapped, offered_fault, step_rewards
from prep_assets.proofs.source_texts import EARLIER, EXACT, TEXT, Held, Missing, Policy, Said, missing, single
from prep_assets.proofs.verdict import Numbers, Rule, Tally, Verdict, Worst, combined, holds
from prep_assets.proofs.words import ByteTable, Spelled
from prep_assets.samples import MEDIA, SYSTEM, TOOL, Row, parts_of
from prep_assets.schemas.reader import apply
from prep_assets.stores.groups import REWARDS, STEP_ENDS, STEP_REWARDS
from prep_assets.stores.table import GROUPS, LINES, TOKENS, Table
from prep_assets.text.vocabulary import Vocabulary

NOT_COMPARED = "not compared: "
UNTEMPLATED = ("prompt_completion", "sections")
"""Schemas whose texts may stand end to end."""
LONG = 16
"""Characters of a text that is not found in a record by chance."""
LOST = "reasoning_dropped_by_template"

# Tokens as text.


class Decoded:
    """Consecutive records as text.

    Attributes:
        text: the bytes of all records, end to end.
        ends: where each record ends in it.
        places: where each token begins in it, with the end behind the last, if the bytes of each id are proven.
    """

    def __init__(
        self,
        decoder: Decoder,
        ids: npt.NDArray[Any],
        sizes: Sequence[int],
        weights: npt.NDArray[Any] | None,
        spelled: Spelled | None,
    ) -> None:
        """`spelled`: the ids as bytes; `None` where that is not proven."""
        self._decoder, self._ids, self._weights, self._tokens = decoder, ids, weights, np.cumsum(sizes)
        self.places: npt.NDArray[Any] | None = None
        if spelled is None:
            listed = decoder.own(np.split(ids, self._tokens[:-1]))
            self.text, self.ends = b"".join(listed), np.cumsum([*map(len, listed)]).tolist()
        else:
            self.text, self.places = spelled
            self.ends = self.places[self._tokens].tolist()

    def begin(self, at: int) -> int:
        """Where a record begins in the text."""
        return int(self.ends[at - 1]) if at else 0

    def held(self, at: int) -> Held:
        """A record alone, with the texts of its trained and of its untrained tokens."""
        whole = self.text[self.begin(at) : self.ends[at]]
        if self._weights is None:
            return Held(whole)
        span = slice(int(self._tokens[at - 1]) if at else 0, int(self._tokens[at]))
        weights, ids = np.maximum(self._weights[span], 0).astype(np.float32), self._ids[span]  # of what is not attended: 0
        return Held(whole, {float(weight): self._part(ids, weights == weight, span.start) for weight in np.unique(weights)})

    def _part(self, ids: npt.NDArray[Any], kept: npt.NDArray[np.bool_], first: int) -> bytes:
        """The text of those tokens of a record that are kept."""
        if self.places is None:
            return self._decoder.own([ids[kept]])[0]
        edges = np.flatnonzero(np.diff(kept, prepend=False, append=False)) + first
        return b"".join(self.text[low:high] for low, high in self.places[edges].reshape(-1, 2).tolist())

    @property
    def is_masked(self) -> bool:
        """Whether it is known which tokens are trained."""
        return self._weights is not None

    def trained_as(self, low: npt.ArrayLike, high: npt.ArrayLike, trained: Sequence[bool]) -> npt.NDArray[np.bool_]:
        """Whether all tokens between bytes `low` and `high` are trained with weight 1, or none of them, as `trained` says."""
        assert self.places is not None and self._weights is not None
        low, high = np.array(low, self.places.dtype), np.array(high, self.places.dtype)
        first, last = np.searchsorted(self.places, low, "right") - 1, np.searchsorted(self.places, high, "left")
        changes = np.flatnonzero(self._weights[1:] != self._weights[:-1])  # behind which tokens the weight is another
        alike = np.searchsorted(changes, first) == np.searchsorted(changes, last - 1)
        equal: npt.NDArray[np.bool_] = alike & (np.maximum(self._weights[first], 0) == trained)
        return equal


class Decoder:
    """Decodes records: by the bytes of each id, where these are proven, else by the tokenizer's own decoder, without white space if it changes that."""

    def __init__(self, vocabulary: Vocabulary, table: ByteTable) -> None:
        self._vocabulary, self._table = vocabulary, table
        self.exact = vocabulary.token_bytes is not None and not puts_spaces(vocabulary)

    def spell(self, text: str) -> bytes:
        """A text as it stands in decoded tokens."""
        return text.encode() if self.exact else solid(text, self._vocabulary).encode()

    def spelled(self, ids: npt.NDArray[Any]) -> Spelled | None:
        """Ids as bytes, where those of each id are proven."""
        return self._table.take(ids) if self.exact else None

    def normal(self, text: str) -> bytes:
        """The same, as the tokenizer normalizes it."""
        return self._vocabulary.normalized(text).encode() if self.exact else self.spell(text)

    def own(self, lists: Sequence[npt.NDArray[Any]]) -> list[bytes]:
        """Texts of lists of ids by the tokenizer's own decoder."""
        return [*map(self.spell, self._vocabulary.decode_batch([each.tolist() for each in lists]))]


def leaves(value: Any) -> Iterator[str]:
    """Yield the strings and numbers of a field of a line."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield key
            yield from leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner)
    elif value is not None:
        yield json.dumps(value)


def _joined(value: Any) -> bytes:
    """What a column of a line says, without the roles of its messages."""
    return "\x00".join(leaves(_without_roles(value))).encode()


def _without_roles(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_roles(inner) for key, inner in value.items() if key != "role" or "content" not in value}
    return [*map(_without_roles, value)] if isinstance(value, list) else value


# What is compared, and what was found.


class Unmet(NamedTuple):
    """A row that lacks a text."""

    id: str
    fault: str


Found = Tally[Unmet]
"""What was found so far: rows and texts compared, rows of each kind, and rows that lack a text."""


def _said(numbers: Numbers) -> str:
    texts = f"{numbers.get('texts_found', 0):,} texts of {numbers.get('rows_compared', 0):,} rows stand in the store, on their side, in their order"
    lost = f"; {numbers[LOST]:,} turns without their reasoning, which the template drops" if numbers.get(LOST) else ""
    cut = f"; {numbers['rows_cut']:,} rows as far as truncation left them" if numbers.get("rows_cut") else ""
    listed = [f"{name}, {rows:,} rows" for name, rows in numbers.items() if name.startswith(NOT_COMPARED)]
    return "; ".join([f"{texts}{lost}{cut}", *listed])


STANDS: Rule[Unmet] = Rule(lambda unmet, _: unmet.fault, ("rows_compared",), _said, ("", "rows are not in the store as they say"))


class SourceTexts(Derivation):
    """Looks for the texts of rows in a store of one domain; with `every`, in every document."""

    def __init__(self, store: Store, *, every: bool = False) -> None:
        super().__init__(store)
        self._sampled = Sampled(every=every or is_small(store))
        recipe = store.recipe
        tags: Sequence[Sequence[str]] = recipe.get("reasoning_tags", ())
        family = store.workspace.family(FAMILIES[store.asset.family])
        template = store.workspace.template(family) if isinstance(family, Chat) and "template" in recipe else None
        shows = template is not None and template.form.shows_calls
        calls, sorts = shows and recipe.get("calls") == "auto", shows and template is not None and sorts_arguments(template)
        self.reading = reading_of(store, tags=tags, calls=calls, sorts=sorts)
        self._weighs = isinstance(store.asset.source, FromLines) or domain_source(store).domain.weigh is None
        self.name = store.partition or store.asset.name
        self.policy, self.truncation = self._policy(), Truncation()
        limit = recipe.get("preprocessing", {}).get("max_seq_len", recipe.get("max_seq_len"))
        if "truncation" in recipe:
            self.truncation = Truncation(recipe["truncation"], limit)
        fim = recipe.get("preprocessing", {}).get("fim")
        parts = ("prefix", "suffix", "middle")
        self._sentinels = [store.vocabulary.backend.token_to_id(fim[f"{part}_token"]) for part in parts] if fim and fim["rate"] else None
        self._stripped = typed_tokens(store.vocabulary.control) if recipe.get("special_in_content") == "strip" else None

    def _policy(self) -> Policy:
        """What is trained, where a row does not say otherwise."""
        if "mask" not in self.store.recipe:
            return Policy({"assistant": True, "user": False, "document": True})
        options = MaskOptions.of(self.store.recipe)
        trains = {role: options.mask.get(role, options.mask_default) == "train" for role in ("assistant", "user", "tool", "document")}
        return Policy(trains, options.train_tool_calls, options.leaves_out_turns)

    @property
    def decoder(self) -> Decoder:
        """Of the store's tokenizer."""
        return self.store.once("decoder", lambda: Decoder(self.store.vocabulary, byte_table(self.store)))

    def judges(self) -> Sequence[tuple[Table | None, Judge]]:
        """One per stream, file or split."""
        look = self._lines if self.store.holds(LINES) else self._groups if self.store.holds(GROUPS) else self._tokens
        tallies = [(stream, Tally(STANDS)) for stream in streams_of(self.store)]
        return [(stream, Compares(self._converted(look(stream, tally)), tally)) for stream, tally in tallies]

    def verdicts(self, results: Sequence[Verdict]) -> Mapping[str, Verdict]:
        """The verdict on all streams."""
        whole = combined(results)
        if whole.passed and results:
            whole = holds(_said, whole.numbers)
            counted, lost = int(self.store.manifest.counts.get(LOST, 0)), int(whole.numbers.get(LOST, 0))
            counts = "mask" in self.store.recipe and self.truncation.mode == "drop" and self.store.recipe["expand"] != "turns"
            if lost > counted and counts:
                detail = f"{lost:,} turns are without their reasoning, of which the template dropped {counted:,}"
                whole = Verdict(False, detail, whole.numbers, Worst("counts", detail))
        return {"source_texts": whole}

    def _converted(self, look: Callable[[StoredRows], Iterator[Unmet]]) -> Callable[[StoredRows], Iterator[Unmet]]:
        """Look at rows, and at what their schema makes of them: whether it says more than they do, white space around their texts, where it has the option
        ``strip``, their documents and template options. So of all rows of a small store, and of one in 64."""
        if isinstance(self.store.asset.source, FromLines) or not self.reading.known:
            return look
        source = domain_source(self.store)
        convert, every, strips = converter(source.domain, source.gives), is_small(self.store), "strip" in self.reading.options

        def both(stored: StoredRows) -> Iterator[Unmet]:
            yield from look(stored)
            for at in [at for at, number in enumerate(stored.numbers) if every or number % SELDOM == 0]:
                row, identity = stored.payloads[at], self.identity(stored, at)
                made: object = apply(convert, row)
                fault = self.reading.surplus(row, made)
                if not fault and (strips or not OFFERED.isdisjoint(row)):
                    example: object = as_example(made, identity, source.gives)
                    fault = offered_fault({key: row[key] for key in row if key not in self.reading.ignore}, example)
                    fault = fault or (self._space_fault(row, example) if strips else "")
                if fault:
                    yield Unmet(identity, fault)

        return both

    def _space_fault(self, row: Row, example: object) -> str:
        """How white space around a text, or a turn without one, is not as the option ``strip`` says; ``""`` where it is."""
        strip, turns = self.reading.options["strip"], [turn for turns in parts_of(example) for turn in turns]
        if any(region.kind in MEDIA for turn in turns for region in turn.regions):  # they cut texts
            return ""
        others = (SYSTEM, TOOL) if strip else ()
        made = [region.text for turn in turns for region in turn.regions if region.kind == TEXT and turn.role not in others]
        said = [each.text for each in self.reading.texts(row) if each.kind == TEXT and each.text.strip()]
        wrong = [text for text in made if text != text.strip()] if strip else [one for one in said if one not in "\n".join(made)]
        wrong += [turn.role for turn in turns if strip and not any(region.text.strip() for region in turn.regions)]
        return f"strip is {strip}, and not so of {wrong[0][:60]!r}" if wrong else ""

    def identity(self, stored: StoredRows, at: int) -> str:
        """The id of a record."""
        return f"{self.name}/{stored.identity(at)}"

    # Streams of tokens.

    def _tokens(self, stream: Table, found: Found) -> Callable[[StoredRows], Iterator[Unmet]]:
        several, tokens = stream.origins.several, stream.columns["tokens"]
        side = {"Sample": "", "Prompt": "prompt"}.get(self.reading.gives, stream.name.rpartition("/")[2])
        masked = "loss_mask" in stream.columns and self._weighs and not several
        documents = self.store.asset.family == "pretrain" and not masked and not several and self._sentinels is None
        firsts = np.flatnonzero(np.append(stream.origins.begins_row, True)) if several else None

        def look(stored: StoredRows) -> Iterator[Unmet]:
            if documents:
                yield from self._documents(found, stored, stream)
                return
            records, before = slice(stored.first, stored.first + len(stored)), list[Held]()
            ids, lengths = tokens.read(records)
            sizes, weights = lengths.tolist(), stream.weights("tokens", tokens.span(records)) if masked else None
            if self._sentinels is None:
                decoded = Decoded(self.decoder, ids, sizes, weights, stored.spelled if self.decoder.exact else None)
            else:
                ids = self._in_text_order(ids, sizes)
                decoded = Decoded(self.decoder, ids, sizes, weights, self.decoder.spelled(ids))
            plain = {*()} if several else self._plain(found, side, stored.payloads, decoded)
            for at, payload in enumerate(stored.payloads):
                if at in plain:
                    continue
                # rows in plain form are all compared, one by one where tokens are few: how many does not depend on how a store is divided
                always = several or (self.decoder.exact and self.reading.plain(payload) is not None)
                if not (always or self._sampled.takes(stored.numbers[at], payload)):
                    continue
                if not len(stream.images) and (column := self.reading.files_in(payload)):
                    yield Unmet(self.identity(stored, at), f"it has files in {column!r}, and the store has none")
                part, record = None if firsts is None else _within(firsts, records.start + at), decoded.held(at)
                yield from self._compare(
                    found,
                    self.identity(stored, at),
                    payload,
                    {side: record},
                    whole=self.truncation.leaves_whole(sizes[at]),
                    part=part,
                    before=before,
                    counted=always or self._sampled.is_counted(stored.numbers[at]),
                )
                before = [*before, record] if part is not None and part[0] + 1 < part[1] else []

        return look

    def _documents(self, found: Found, stored: StoredRows, stream: Table) -> Iterator[Unmet]:
        """Look at documents that are more than one text, and at a sample of others, of which `tokenization_identity` compares every token with the text
        that a second reading gives."""
        numbers, rows = stored.numbers, stored.payloads
        chosen = [at for at, row in enumerate(rows) if self.reading.plain(row) is None or self._sampled.takes(numbers[at], row, SELDOM)]
        listed = [stream.record(stored.first + at, "tokens") for at in chosen]
        if not listed:
            return
        ids = np.concatenate(listed)
        decoded = Decoded(self.decoder, ids, [*map(len, listed)], None, self.decoder.spelled(ids))
        for number, at in enumerate(chosen):
            counted = self._sampled.is_counted(numbers[at], SELDOM) or self.reading.plain(rows[at]) is None
            yield from self._compare(found, self.identity(stored, at), rows[at], {"": decoded.held(number)}, counted=counted)

    def _plain(self, found: Found, side: str, rows: ReadRows, decoded: Decoded) -> set[int]:
        """Return which records hold all texts of their plain rows, in order, in tokens that are trained as their roles say. All others are looked at more
        closely, one by one."""
        if decoded.places is None:
            return set()
        other, text, own, texts = {"chosen": "rejected", "rejected": "chosen"}.get(side), decoded.text, list[int](), 0
        low, high, trained, held, begin = list[int](), list[int](), list[bool](), set[int](), 0
        frames: dict[tuple[str, str], int] = {}  # bytes that were between the texts of two roles
        trains = {**self.policy.trains, EARLIER: False, **({side: True} if other else {})}
        weighed = {
            role: is_trained for role, is_trained in trains.items() if decoded.is_masked and not (is_trained and self.policy.last_only)
        }
        for at, (said, end) in enumerate(zip(self.reading.plain_rows(rows), decoded.ends, strict=True)):
            position, begin, first, before = begin, end, len(low), ""
            if said is None:
                continue
            for each, role in said:
                if role == other or not (form := each.strip().encode()):
                    continue
                between, before = (before, role), role
                if text.startswith(form, position + frames.get(between, 0), end):
                    position += frames.get(between, 0)
                elif (found_at := text.find(form, position, end)) < 0:
                    position = -1
                    break
                else:
                    frames[between], position = found_at - position, found_at
                if role in weighed:
                    low.append(position)
                    high.append(position + len(form))
                    trained.append(weighed[role])
                position += len(form)
            if position < 0:
                del low[first:], high[first:], trained[first:]
                continue
            held.add(at)
            own += [at] * (len(low) - first)
            texts += len(said)
        if own:
            held -= {*np.array(own)[~decoded.trained_as(low, high, trained)].tolist()}
        found.numbers["rows_compared"] += len(held)
        found.numbers["texts_found"] += texts
        return held

    def _in_text_order(self, ids: npt.NDArray[Any], sizes: Sequence[int]) -> npt.NDArray[Any]:
        """Records whose middle stands at the end, with it in its place and the sentinels behind."""
        ordered = list[npt.NDArray[Any]]()
        for record in np.split(ids, np.cumsum(sizes)[:-1]):
            found = [np.flatnonzero(record == token) for token in self._sentinels or ()]
            if any(len(places) != 1 for places in found):
                ordered.append(record)
                continue
            (prefix,), (suffix,), (middle,) = found
            end = len(record) - bool(self.store.recipe.get("append_eod", True))
            parts = (record[:prefix], record[prefix + 1 : suffix], record[middle + 1 : end], record[suffix + 1 : middle])
            ordered += [*parts, record[end:], record[[prefix, suffix, middle]]]
        return np.concatenate(ordered)

    def _compare(
        self,
        found: Found,
        identity: str,
        row: Row,
        held: Mapping[str, Held],
        *,
        whole: bool = True,
        part: tuple[int, int] | None = None,
        before: Sequence[Held] = (),
        counted: bool = True,
    ) -> Iterator[Unmet]:
        """Compare a row with what a store holds of it.

        Args:
            whole: whether truncation left it whole.
            part: number of the record among those that its row was expanded to, and how many these are. Each ends with the next trained answer; one
                alone may be the whole row.
            before: records of the row's earlier answers, which have the reasoning of these.
            counted: whether the row is in the numbers of the verdict.
        """
        numbers = found.numbers if counted else Counter[str]()
        numbers["rows_compared"] += 1
        try:
            said = self.reading.texts(row)
        except Unlike as unlike:
            yield Unmet(identity, str(unlike))
            return
        if self.reading.schema.startswith("lines of "):
            said = _of_side(said, held)
        if not self.store.holds(LINES):  # golds and labels stand in lines
            said = [each for each in said if each.kind != EXACT]
        lost, begin = list[Said](), False
        if part is not None and (until := self._until(said, held, *part)) is not None:
            said = until
        elif part is not None:
            begin, whole = part[0] + 1 < part[1], False
        fault = self._missing(said, held, lost)
        if fault is not None and not self.reading.known:
            self._uncompared(numbers, said, held)
            return
        if fault is not None and not whole:
            numbers["rows_cut"] += 1
            fault = self._as_cut(said, held, begin=begin)
        if fault is None and whole and not lost and "" in held and (must := self._end_to_end(said)) is not None and held[""].text != must:
            stored = held[""].text.decode(errors="replace")
            fault = Missing(said[-1], f"ends a record that must be {must.decode()[-80:]!r}, and is {stored[-80:]!r}")
        if fault is not None:
            yield Unmet(identity, str(fault))
            return
        if lost and self.store.holds(LINES):  # no template leaves it out
            yield Unmet(identity, str(Missing(lost[0], "is reasoning, and stands nowhere in the line")))
            return
        lost = [each for each in lost if not any(self._holds(record, each) for record in before)]
        numbers["texts_found"] += len(said) - len(lost)
        if lost and not whole and not begin:
            numbers["rows_cut"] += 1
        elif lost and not begin:
            last = max(each.turn for each in said)
            if (gone := next((each for each in lost if each.turn == last), None)) is not None:
                yield Unmet(identity, str(Missing(gone, "is reasoning of the last turn, and stands nowhere in it")))
                return
            numbers[LOST] += len({each.turn for each in lost})

    def _until(self, said: Sequence[Said], held: Mapping[str, Held], number: int, count: int) -> list[Said] | None:
        """What the record `number` of the `count` that a row was expanded to must hold: all up to its answer, or all of a row that is one record. `None` where
        it is not known which turns are trained."""
        answers = sorted({each.turn for each in said if each.is_answer and self.policy.weight(each, by_role=True)})
        if len(answers) != count:
            return None
        is_whole = count == 1 and self._missing(said, held, []) is None
        return [each for each in said if is_whole or each.turn <= answers[number]]

    def _end_to_end(self, said: Sequence[Said]) -> bytes | None:
        """The whole record of a prompt and its completions that no template writes: the separator ends a prompt before a completion, and the end-of-text token
        each completion. `None` for all others, and for documents, of which `tokenization_identity` compares the whole."""
        options, schema = self.reading.options, self.reading.schema
        if self.store.asset.family == "pretrain":
            return None
        roles = {"sections": ("user", "completion")}.get(schema, ("prompt", "completion"))
        if schema not in UNTEMPLATED or any(each.role not in roles for each in said) or options.get("template") or not self.decoder.exact:
            return None
        if self._stripped is not None and any(self._stripped.search(each.text) for each in said):
            return None
        special = self.store.vocabulary.special
        end = special.get("eos_token", "")
        separator = options.get("separator", "")
        separator = special.get("sep_token", "<|sep|>") if separator is None else separator
        text = ""
        for each, following in zip(said, [*said[1:], None], strict=True):
            before = each.role == "prompt" and following is not None and following.role == "completion"
            text += each.text + (end if each.role == "completion" else separator if before else "")
        return self.decoder.normal(text)

    def _missing(self, said: Sequence[Said], held: Mapping[str, Held], lost: list[Said]) -> Missing | None:
        spell = self.decoder.spell if self.store.holds(TOKENS) or self.store.holds(GROUPS) else str.encode
        fault = missing(said, held, lost, spell, self.policy)
        if fault is None or spell is str.encode:
            return fault
        lost.clear()
        return missing(said, held, lost, self._normal, self.policy)

    def _holds(self, record: Held, said: Said) -> bool:
        lost = list[Said]()
        return self._missing([said], {said.side: record}, lost) is None and not lost

    def _normal(self, text: str) -> bytes:
        if self._stripped is not None:
            text = self._stripped.sub("", text).strip()
        return self.decoder.normal(text)

    def _as_cut(self, said: Sequence[Said], held: Mapping[str, Held], *, begin: bool) -> Missing | None:
        """What a record lacks that truncation did not take: texts at one end of it, or texts that are not trained."""
        mode, turns = self.truncation.mode, sorted({each.turn for each in said})
        if self.truncation.limit is not None and mode == "prompt":
            trained = [
                each for each in said if each.is_answer and self.policy.weight(each, by_role=True) != 0
            ]  # it may shorten any other text
            last = max((each.turn for each in trained), default=0)
            return self._missing([each for each in trained if each.turn == last or not self.policy.last_only], held, [])
        unweighed = {side: record._replace(weighed=None) for side, record in held.items()}
        for each in said:  # a long text is no accident of another
            own = each.weight is not None and len(each.text) > LONG and self._missing([each], unweighed, []) is None
            if own and (fault := self._missing([each], held, [])) is not None:
                return fault
        first = self._missing(said, held, [])
        for number in range(1, len(turns)):
            kept = {*turns[number:]} if mode in ("turns", "start") and not begin else {*turns[: len(turns) - number]}
            if self._missing([each for each in said if each.turn in kept and each.kind != "anywhere"], held, []) is None:
                return None
        return first if len(turns) < 2 and mode not in ("start", "end") else None

    def _uncompared(self, numbers: Counter[str], said: Sequence[Said], held: Mapping[str, Held]) -> None:
        """Count the columns of a user's schema whose strings do not stand in the record."""
        for path in dict.fromkeys(each.path for each in said if self._missing([each], held, []) is not None):
            numbers[f"{NOT_COMPARED}{path}"] += 1

    # Lines.

    def _lines(self, lines: Table, found: Found) -> Callable[[StoredRows], Iterator[Unmet]]:
        objects = iter(lines)

        def look(stored: StoredRows) -> Iterator[Unmet]:
            rows = zip(map(partial(self.identity, stored), range(len(stored))), stored.numbers, stored.payloads, objects, strict=False)
            for identity, own in groupby(rows, key=itemgetter(0)):
                listed = list(own)
                _, number, row, line = listed[0]
                if unlike := [tool for tool in json.loads(line.get("tools", "[]")) if not is_wrapped(tool)]:
                    yield Unmet(identity, f"it has a tool that is not wrapped once: {unlike[0]!r:.300}")
                if len(listed) == 1 and self._plain_line(found, row, line):
                    continue
                if self._sampled.takes(number, row):
                    yield from self._compare(
                        found, identity, row, sides_of([line for *_, line in listed]), counted=self._sampled.is_counted(number)
                    )

        return look

    def _plain_line(self, found: Found, row: Row, line: Row) -> bool:
        """Whether a line of a pair holds the texts of its plain row and no more, each on its side."""
        if (sides := self.reading.sides(row)) is None:
            return False
        for side, said in sides.items():
            value = line.get(side, ())
            stored = [value] if isinstance(value, str) else [message["content"] for message in value if len(message) == 2]
            if not said or [text.strip() if isinstance(text, str) else text for text in stored] != [text.strip() for text, _ in said]:
                return False
        found.numbers["rows_compared"] += 1
        found.numbers["texts_found"] += sum(map(len, sides.values()))
        return True

    # Groups.

    def _groups(self, groups: Table, found: Found) -> Callable[[StoredRows], Iterator[Unmet]]:
        def look(stored: StoredRows) -> Iterator[Unmet]:
            for at, (group, _, payload) in enumerate(stored.records()):
                sequences = [
                    Decoded(self.decoder, ids, [len(ids)], weights, self.decoder.spelled(ids)).held(0)
                    for _, ids, weights in groups.sequences(group)
                ]
                sides = {"prompt": sequences[0]} | {f"responses[{number}]": held for number, held in enumerate(sequences[1:])}
                yield from self._compare(found, self.identity(stored, at), payload, sides)
                steps = step_rewards(self.reading.schema, self.reading.options, payload)
                if steps is not None:
                    own, ends = (groups.columns[key].arrays(group)[0] for key in (STEP_REWARDS, STEP_ENDS))
                    if own[ends != 0].tolist() != [*map(single, steps)]:
                        yield Unmet(self.identity(stored, at), f"its steps have the rewards {steps}, and others are in the store")
                rewards = payload.get(str(self.reading.options.get("rewards_key", "rewards"))) if self.reading.schema == "group" else None
                if isinstance(rewards, list) and np.array(rewards, np.float32).tolist() != groups.record(group, REWARDS).tolist():
                    yield Unmet(self.identity(stored, at), f"its rewards are {rewards}, and others are in the store, or in another order")

        return look


def _within(firsts: npt.NDArray[Any], record: int) -> tuple[int, int]:
    """Return the number of a record among those of its row, and how many these are; `firsts`: the first record of each row, and the end."""
    row = int(np.searchsorted(firsts, record, "right")) - 1
    return record - int(firsts[row]), int(firsts[row + 1] - firsts[row])


def _of_side(said: Sequence[Said], held: Mapping[str, Held]) -> list[Said]:
    """The texts of a line that belong to one side of a pair, the prompt in front of the answer."""
    [side] = held
    return [each._replace(side=side) for each in said if each.side in ("prompt", "", side)]


def sides_of(lines: Sequence[Row]) -> dict[str, Held]:
    """What the lines of one row hold, side by side; several lines are labelled answers to one prompt."""
    [line, *_] = lines
    prompt = _joined(line.get("prompt"))
    offered = [line[key] for key in ("tools", "chat_template_kwargs", "instruction") if key in line]
    sides = {"prompt": Held(prompt)}
    answers = {side: line[side] for side in ("chosen", "rejected") if side in line}
    answers |= {f"responses[{number}]": response for number, response in enumerate(line.get("responses", ()))}
    if "completion" in line:
        answers |= {f"responses[{number}]": each["completion"] for number, each in enumerate(lines)}
        sides |= {f"label[{number}]": Held(json.dumps(each["label"]).encode()) for number, each in enumerate(lines)}
        sides["label"] = sides["label[0]"]
    for side, answer in answers.items():
        sides[side] = Held(prompt + b"\x00" + _joined(answer), begins=len(prompt) + 1)
    for field_name in ("gold", "verifier", "margin", "rewards"):
        if field_name in line:
            sides[field_name] = Held(json.dumps(line[field_name]).encode())
    sides |= {name: Held(_joined(line[name])) for name in ("query", "positives", "negatives", "instruction") if name in line}
    if "arguments" in line:
        sides["arguments"] = Held(_joined(json.loads(line["arguments"])))
    sides[""] = Held(_joined([*(json.loads(each) if isinstance(each, str) and each[:1] == "[" else each for each in offered), *lines]))
    return sides


SOURCE_TEXTS = derived(
    "source_texts",
    "Every text of a row, read by a table of what becomes of it, stands in the store: on its side, in its order, as often, trained as the row says.",
    SourceTexts,
)
