"""Checks of prompts, of generated questions, and of scored groups: what is stored against what the rows of their sources say."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, chain, pairwise, repeat, zip_longest
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from prep_assets.checks.of_conversations import IDENTITY, fresh_render
from prep_assets.checks.of_stores import ids_type, require_full_shards
from prep_assets.checks.rejections import of_tokens, read_as_said
from prep_assets.checks.relations import Pairs, has_few_tokens, is_small, relation
from prep_assets.checks.selection import as_built
from prep_assets.checks.sources_again import StoredRows, domain_source, example_of
from prep_assets.errors import Refused, StoreError
from prep_assets.extensions.lines.checks import OfLines, require_current
from prep_assets.extensions.lines.proofs import Line, check_lines, lines_verdict
from prep_assets.extensions.lines.write import sample_of, turns_of
from prep_assets.extensions.rl.config import Arithmetic, Rl
from prep_assets.extensions.rl.groups import Tokenize, conversation_of, conversations
from prep_assets.extensions.rl.prompts import prompt_row
from prep_assets.extensions.rl.proofs.golds import (
    CONVERTED,
    Converted,
    Gold,
    as_number,
    check_golds,
    is_told,
    second_reading,
    stands_in,
    worked_out,
)
from prep_assets.extensions.rl.proofs.groups import (
    Rollout,
    RunRow,
    Runs,
    Scores,
    Stepwise,
    check_rewards,
    check_runs,
    check_sampled,
    check_steps,
)
from prep_assets.extensions.rl.proofs.questions import questions
from prep_assets.extensions.rl.proofs.whole import Trace, Turns, is_whole
from prep_assets.pipeline.asset import Check, Conversations, FromLines, Reasons, Store
from prep_assets.pipeline.examples import converter
from prep_assets.pipeline.sources import domain_of
from prep_assets.proofs.chat_blocks import PlainDerivation, answers_derivation
from prep_assets.proofs.derive import MaskOptions
from prep_assets.proofs.formats import definition_of, files, rule_named
from prep_assets.proofs.mask import UNWEIGHED, Conversation, IdentityProof, Left, MaskProof
from prep_assets.proofs.second_reading import group_again, read_again, shown_by
from prep_assets.proofs.tables import check_rows
from prep_assets.proofs.verdict import Tally, Verdict, Worst, combined, wrong_claim
from prep_assets.samples import ASSISTANT, USER, Group, Prompt, Row, Sample
from prep_assets.schemas.reader import apply
from prep_assets.stores.groups import LOGPROBS, OF_RUNS, PROMPTS, RESPONSES, REWARDS, STEP_ENDS, STEP_REWARDS, TEST, splits
from prep_assets.stores.table import Table, open_stream
from prep_assets.text.render import render
from prep_assets.text.template import ChatTemplate

T = TypeVar("T")


# Golds of prompts.


class Golds(OfLines):
    """Checks every gold against a second reading of its row."""

    rule = check_golds

    def verdicts(self, results: Sequence[Verdict]) -> Mapping[str, Verdict]:
        """The verdict on all files."""
        return {"gold_answers": combined(results)}

    def pairs(self, file: Table) -> Callable[[StoredRows], Iterator[Gold]]:
        """The gold of each line."""
        objects = iter(file)
        return lambda rows: (Gold(name, *self._second_gold(row, line)) for name, _, row, line in self.with_rows(objects, rows))

    def _second_gold(self, payload: Row, content: Row) -> tuple[str, object, Fraction | Converted | None]:
        prompt = content["prompt"] if isinstance(content["prompt"], str) else str(content["prompt"])
        gold = content["gold"] if content.get("verifier", "number") == "number" else as_number(content["gold"])
        if "arguments" not in content or is_told(content["arguments"], payload):
            answers = [value for value in payload.values() if isinstance(value, str) and "####" in value]
            if answers:
                return prompt, gold, second_reading(answers[0])
            arithmetic = worked_out(prompt)
            if arithmetic is not None:
                return prompt, gold, arithmetic
            if stands_in(content["gold"], payload):
                return prompt, 1, Fraction(1)
        # the user's own schema computes it: the only check left is that it gives the same gold and arguments again
        try:
            example = apply(self.convert, payload)
        except Refused:
            return prompt, content["gold"], None
        made = prompt_row(example, "messages") if isinstance(example, Prompt) else {}
        same = all(made.get(name) == content.get(name) for name in ("gold", "arguments"))
        return prompt, content["gold"], CONVERTED if same else None


# The generated arithmetic curriculum.


def arithmetic_golds(store: Store) -> Verdict:
    """Check every gold against the value of its question."""
    rows = enumerate(store.lines_of(store.asset.name))
    return check_golds(Gold(f"line {number + 1}", row["prompt"], row["gold"], worked_out(row["prompt"])) for number, row in rows)


def questions_match(store: Store) -> Verdict:
    """Check generated questions against their seed, and how many of each level the manifest counts."""
    levels = Counter(f"level_{level}" for _, _, level in _drawn(store.workspace.family(Rl).arithmetic))
    if fault := wrong_claim({"read": levels.total(), "kept": levels.total(), **levels}, store.manifest.counts):
        return Verdict(False, fault, {}, Worst("counts", fault))
    return lines_verdict([check_lines(matched_questions(store))], stored=len(store.lines_of(store.asset.name)))


def _drawn(options: Arithmetic) -> Iterator[tuple[str, Any, str]]:
    return questions(options.n, options.largest, options.seed, options.levels or ("seed",), unique=options.unique)


def matched_questions(store: Store) -> Iterator[Line]:
    """Yield the stored questions with those drawn again."""
    options = store.workspace.family(Rl).arithmetic
    for number, (stored, question) in enumerate(zip_longest(store.lines_of(store.asset.name), _drawn(options)), 1):
        if question is None:
            yield Line(f"line {number}", stored or {}, None)
            continue
        text, value, level = question
        made = {"prompt": text, "gold": float(value), **({} if options.levels is None else {"level": level})}
        yield Line(f"line {number}", stored or {}, made, by_columns=True)


# Scored groups.


class StoredGroup(Struct, frozen=True):
    """A group of a store with its source, and what its proofs compare.

    Attributes:
        number: its number in the store.
        id: its record id.
        source: the group that its row gives.
        payload: the row.
    """

    store: Store
    stored: Table
    number: int
    id: str
    source: Group
    payload: Mapping[str, Any]

    def prompt(self) -> npt.NDArray[Any]:
        """The ids of its prompt."""
        return self.stored.record(self.number, PROMPTS)

    def of_responses(self, *names: str) -> Iterator[tuple[npt.NDArray[Any], ...]]:
        """Yield the arrays of each response in some columns."""
        return zip(*(self.stored.columns[name].arrays(self.number) for name in names), strict=True)

    def conversations(self) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
        """Yield ids and loss mask of the prompt, which is masked, followed by each response: two arrays of P + R."""
        prompt = self.prompt()
        for ids, mask in self.of_responses(RESPONSES, "masks"):
            yield np.concatenate([prompt, ids]), np.concatenate([np.zeros(len(prompt), mask.dtype), mask])

    def _responses(self) -> Iterator[tuple[str, Sample, npt.NDArray[Any], npt.NDArray[Any]]]:
        """Yield id, conversation, ids and mask of each response with its prompt; none where ids were sampled.

        Raises:
            StoreError: another number of responses than in the source.
        """
        if self.source.sampled is not None:
            return
        try:
            samples = conversations(self.source)
        except Refused as refusal:
            raise StoreError(f"the store holds {self.id}, which cannot be read as a conversation: {refusal}") from refusal
        if (count := len(self.stored.columns[RESPONSES].spans(self.number))) != len(samples):
            raise StoreError(f"{self.id}: {count} responses are stored, the source has {len(samples)}")
        for number, (stored, sample) in enumerate(zip(self.conversations(), samples, strict=True)):
            yield f"{self.id}, response {number}", sample, *stored

    def rows(self) -> Iterator[Conversation]:
        """Yield each response with its prompt, and what must be trained."""
        expected = self.store.once("answers", lambda: answers_derivation(_template(self.store), alone=is_small(self.store)))
        for identity, sample, ids, mask in self._responses():
            derived = expected(sample)
            yield Conversation(identity, ids, mask, Left(derived, derived.expected))

    def renders(self) -> Iterator[Conversation]:
        """Yield each response with its prompt, and a fresh render of both."""
        return (fresh_render(identity, ids, sample, _template(self.store)) for identity, sample, ids, _ in self._responses())

    def prompts(self) -> Iterator[Conversation]:
        """Yield the prompt with a fresh render that ends with the generation prompt, where the response begins; nothing where its ids were sampled."""
        if self.source.sampled is None or self.source.sampled.prompt is None:
            yield _prompted(self.store, f"{self.id}, prompt", self.prompt(), conversation_of(self.source, self.source.prompt))

    def scores(self) -> Iterator[Scores]:
        """Yield its rewards, and those of its source."""
        yield Scores(
            self.id, self.stored.record(self.number, REWARDS), len(self.stored.columns[RESPONSES].spans(self.number)), self.source.rewards
        )

    def rollouts(self) -> Iterator[Rollout]:
        """Yield its rollouts where the source has sampled ids."""
        if self.source.sampled is not None:
            keys = {name: {RESPONSES: "tokens", "masks": "loss_mask"}.get(name, name) for name in self.stored.columns}
            own = {key: name for name, key in keys.items() if name not in (PROMPTS, REWARDS, *OF_RUNS)}
            rollout = [{key: array.tolist() for key, array in zip(own, arrays, strict=True)} for arrays in self.of_responses(*own.values())]
            yield Rollout(self.id, self.prompt().tolist(), rollout, self.source.sampled)

    def runs(self) -> Iterator[Runs]:
        """Yield its rows where they are of runs of agents, with the calls of its row."""
        if OF_RUNS[0] not in self.stored.columns:
            return
        domain, rows = domain_source(self.store).domain, list[RunRow]()
        calls_of = rule_named(definition_of(domain.schema_name)["x-runs"])
        numbers = (self.stored.record(self.number, name).tolist() for name in OF_RUNS)
        stored = self.stored.columns[LOGPROBS].arrays(self.number) if LOGPROBS in self.stored.columns else repeat(np.zeros(0))
        rewards = self.stored.record(self.number, REWARDS).tolist()
        for (ids, mask), own, run, turn, reward in zip(self.conversations(), stored, *numbers, rewards, strict=False):
            logprobs = [0.0] * (len(ids) - len(own)) + own.tolist() if len(own) else []
            rows.append(RunRow(run, turn, ids.tolist(), mask.tolist(), logprobs, reward=reward))
        yield Runs(self.id, rows, calls_of(self.payload, domain.options))

    def stepwise(self) -> Iterator[Stepwise]:
        """Yield each response that is judged step by step, with what stands at the ends of its steps."""
        stored = self.of_responses(RESPONSES, STEP_ENDS, STEP_REWARDS) if self.source.steps else ()
        for number, ((ids, ends, rewards), steps) in enumerate(zip(stored, self.source.steps, strict=False)):
            marked = np.flatnonzero(ends == 1)
            texts = [self.store.vocabulary.decode(ids[: end + 1]) for end in marked]
            follows = [self.store.vocabulary.decode(ids[end + 1 : end + 2]) for end in marked[:-1]]
            elsewhere, sampled, places = int(np.count_nonzero(rewards[ends != 1])), self.source.sampled, None
            if sampled is not None and sampled.masks is not None:
                edges = pairwise([*sampled.masks[number], 0])
                places = marked.tolist(), [token for token, pair in enumerate(edges) if pair == (1, 0)]
            yield Stepwise(f"{self.id}, response {number}", texts, rewards[marked].tolist(), elsewhere, steps, places, [*follows, ""])


def steps_again(store: Store) -> Callable[[str, Row], str | None]:
    """Return what judges groups that are rejected since a step shares a token with its neighbour: right where each step ends with a token of the text alone."""
    convert, encoder = converter(domain_source(store).domain, Group), store.vocabulary.encoder

    def judge(reason: str, row: Row) -> str | None:
        group = example_of(convert, row, "", Group)
        for steps in group.steps:
            offsets = encoder.encode("".join(text for text, _ in steps), add_special_tokens=False).offsets
            if not {*accumulate(len(text) for text, _ in steps)} <= {end for _, end in offsets}:
                return None
        return "each of its steps ends with a token"

    return judge


def rows_again(store: Store) -> Callable[[str, Row], str | None]:
    """Return what judges groups whose ids are said to differ from their texts: right where their rows are not those of the calls in the source."""
    domain, others = domain_source(store).domain, of_tokens(store)
    runs = definition_of(domain.schema_name).get("x-runs") if domain.schema_name in files() else None
    if runs is None:
        return others
    convert, calls_of = converter(domain, Group), rule_named(runs)

    def judge(reason: str, row: Row) -> str | None:
        group = example_of(convert, row, "", Group)
        assert group.sampled is not None
        rows = [RunRow(*at, *one, []) for at, one in zip(group.sampled.runs, _as_sampled(group), strict=True)]
        verdict = check_runs([Runs("it", rows, calls_of(row, domain.options))])
        return others(reason, row) if verdict.passed else f"its calls are other rows than its schema makes of them: {verdict.summary}"

    return judge


def whole_again(store: Store) -> Callable[[str, Row], str | None]:
    """Return what judges groups whose ids and messages are said to differ: right where each says what the other says."""
    domain, others = domain_source(store).domain, rows_again(store)
    said = definition_of(domain.schema_name).get("x-said") if domain.schema_name in files() else None
    if said is None:
        return others
    convert, messages, options = converter(domain, Group), rule_named(said), store.workspace.family(Rl).model_dump()

    def judge(reason: str, row: Row) -> str | None:
        if (found := others(reason, row)) is not None:
            return found
        group = group_again(example_of(convert, row, "", Group), options, **shown_by(_template(store)))
        rows, said = _as_sampled(group), messages(row, domain.options)
        whole = is_whole(Trace("it", shown_turns(store, rows, group), said))
        if whole and (reason != "mask_differs_from_turns" or _one_a_stretch(said, [mask for _, mask in rows])):
            return "its ids say what its messages say, and nothing more"
        return "" if whole is False and reason == "lossy_trace" else None

    return judge


def _one_a_stretch(messages: Sequence[Mapping[str, Any]], masks: Sequence[Sequence[int]]) -> bool:
    """Whether there are as many stretches of sampled ids as answers that a model wrote, of which no two follow each other."""
    answers = [message["role"] == ASSISTANT and message.get("weight") != 0 for message in messages]
    stretches = sum(edge == (0, 1) for mask in masks for edge in pairwise([0, *mask]))
    return stretches == sum(answers) and (True, True) not in pairwise(answers)


def _as_sampled(group: Group) -> list[tuple[list[int], list[int]]]:
    """Ids of the prompt with each response, and which of them were sampled."""
    sampled = group.sampled
    assert sampled is not None and sampled.masks is not None and sampled.prompt is not None
    pairs = zip(sampled.responses, sampled.masks, strict=True)
    return [([*sampled.prompt, *ids], [0] * len(sampled.prompt) + [*mask]) for ids, mask in pairs]


def shown_turns(store: Store, rows: Iterable[tuple[npt.ArrayLike, npt.ArrayLike]], group: Group) -> list[Turns]:
    """Return what the model of each response was given and wrote, without control tokens, and its conversation as the template writes it.

    Args:
        rows: ids and loss mask of the prompt with each response, 1-D.
    """
    found, runs = list[Turns](), group.sampled.runs if group.sampled is not None else ()
    for (ids, mask), sample, (_, turn) in zip(rows, conversations(group), runs, strict=True):
        parts = [store.vocabulary.decode(part) for part in np.split(np.asarray(ids), np.flatnonzero(np.diff(mask)) + 1)]
        given, wrote, shown = " ".join(parts[0::2]), " ".join(parts[1::2]), render(sample, _template(store)).text
        for control in store.vocabulary.control:
            given, wrote, shown = (text.replace(control, " ") for text in (given, wrote, shown))
        found.append(Turns(given, wrote, shown, later=turn > 0))
    return found


def groups_of(store: Store, stream: Table) -> Callable[[StoredRows], Sequence[StoredGroup]]:
    """Return what gives the groups of a split with their sources; all checks take the same.

    Raises:
        StoreError: groups of another domain; later: a record of the store gives no group.
    """
    family, name, domains = store.workspace.family(Rl), store.partition, stream.origins.domains
    if list(domains) != [name]:
        raise StoreError(f"its index has the domains {', '.join(domains)}, it is of {name}")
    shown, convert = shown_by(_template(store)), converter(domain_source(store).domain, Group)

    @lru_cache(1)
    def groups(rows: StoredRows) -> list[StoredGroup]:
        found = list[StoredGroup]()
        for number, identity, payload in rows.records():
            group = example_of(convert, payload, f"{name}/{identity}", Group)
            found.append(
                StoredGroup(store, stream, number, f"{name}/{identity}", group_again(group, family.model_dump(), **shown), payload)
            )
        return found

    return groups


def _template(store: Store) -> ChatTemplate:
    return store.once("template", lambda: store.workspace.template(store.workspace.family(Rl)))


def _prompted(store: Store, identity: str, ids: Any, sample: Sample) -> Conversation:
    """A prompt with a fresh render that ends with the generation prompt."""

    def make() -> PlainDerivation:
        return PlainDerivation(MaskOptions(), _template(store), typed_controls=False, prompted=True, alone=is_small(store))

    derived = store.once("prompted", make)(sample)
    return Conversation(identity, ids, UNWEIGHED, Left(derived, ()))


def _group_integrity(store: Store) -> Verdict:
    """Check the rows of prompts and responses."""
    size, types, folders = store.vocabulary.size, ids_type(store), splits(store.directory)
    may_hold_out = store.family.of_some("test_fraction") or any(domain_of(store.family, name).test_files for name in store.domains)
    if TEST in folders and not may_hold_out:
        raise StoreError(f"nothing is held out, and there is a folder {TEST}. Build it again")
    tables = {folder / name: open_stream(folder, name) for folder in folders.values() for name in (PROMPTS, RESPONSES)}
    for place, table in tables.items():
        require_full_shards(store, place, table.lengths)
    return combined(check_rows(table, vocabulary_size=size, types=types) for table in tables.values())


GROUP_ROWS = Check("row_integrity", "Ids are inside the vocabulary, and every response trains something.", _group_integrity)


def of_groups(of_group: Callable[[StoredGroup], Iterable[T]]) -> Pairs:
    """What is compared of each group."""

    def pairs(store: Store, stream: Table) -> Callable[[StoredRows], Iterable[T]]:
        groups = store.once(f"groups of {stream.name}", lambda: groups_of(store, stream))
        return lambda rows: chain.from_iterable(map(of_group, groups(rows)))

    return pairs


def _identity(store: Store) -> IdentityProof:
    return IdentityProof(store.vocabulary, whole=has_few_tokens(store))


GROUP_CHECKS = (
    relation(
        "mask_alignment",
        "Trained tokens of every prompt with each of its responses decode to exactly the answer and its stop token.",
        (of_groups(StoredGroup.rows), lambda store: MaskProof(store.vocabulary)),
    ),
    relation("tokenization_identity", IDENTITY, (of_groups(StoredGroup.renders), _identity), (of_groups(StoredGroup.prompts), _identity)),
    relation(
        "rewards",
        "Every reward is finite, each response of a group has one, and they are those of the source.",
        (of_groups(StoredGroup.scores), lambda store: Tally(check_rewards)),
    ),
    relation(
        "sampled_ids",
        "Ids and log-probabilities that the source has as sampled are stored as they are, every sampled token is trained, and no other.",
        (of_groups(StoredGroup.rollouts), lambda store: Tally(check_sampled)),
    ),
    relation(
        "step_rewards",
        "Where responses are judged step by step, each reward stands at the token with which the text of its step ends.",
        (of_groups(StoredGroup.stepwise), lambda store: Tally(check_steps)),
    ),
    relation(
        "runs",
        "Rows of agents' runs are those that the calls of their sources give: joined where a prompt begins with all tokens before, else begun anew.",
        (of_groups(StoredGroup.runs), lambda store: Tally(check_runs)),
    ),
)


# RL prompts.


def prompt_renders(store: Store, stream: Table) -> Callable[[StoredRows], Iterator[Conversation]]:
    """Return what gives each record of a stream of prompts with a fresh render of its line, generation prompt included."""
    assert isinstance(store.asset.source, FromLines)
    _, file = store.asset.source.files[stream.name]
    require_current(store, "prompts")
    shown = shown_by(_template(store))

    def pairs(rows: StoredRows) -> Iterator[Conversation]:
        for line, (number, _, payload) in zip(rows.rows, rows.records(), strict=True):
            sample = read_again(sample_of(payload, turns_of(payload["prompt"], USER)), store.recipe, **shown)
            yield _prompted(store, f"{file} line {line + 1}", stream.record(number, "tokens"), sample)

    return pairs


PROMPT_IDENTITY = relation("tokenization_identity", IDENTITY, (prompt_renders, _identity))


# Rejected rows.


def refused_groups(store: Store) -> Reasons:
    """Return a function that judges rejected groups again."""
    tokenize = Tokenize(store.workspace, store.partition)
    return as_built(lambda quarantine: lambda items: deque(tokenize(items, quarantine), 0))


def rendered_prompts(store: Store) -> Conversations:
    """Return what a template renders of a line of a prompt."""
    return lambda row: [(sample_of(row, turns_of(row["prompt"], USER)), True)]


def rendered_groups(store: Store) -> Conversations:
    """Return what a template renders of a row of a group."""
    read = read_as_said(store, Group)

    def chats(row: Mapping[str, Any]) -> list[tuple[Sample, bool]]:
        group = read(row)
        if not isinstance(group, Group) or group.sampled is not None:
            return []
        return [(conversation_of(group, group.prompt), True), *((sample, False) for sample in conversations(group))]

    return chats
