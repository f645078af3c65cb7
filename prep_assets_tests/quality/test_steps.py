"""Each quality step against its reference: the rules of others, a computation by other code, or values planted with a seed."""

from __future__ import annotations

import gzip
import html
import json
import os
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xxhash
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prep_assets.config.family import PrivateKind
from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.extensions.quality import gopher, web_pages
from prep_assets.extensions.quality.golds import gold_answers
from prep_assets.extensions.quality.language import identifier
from prep_assets.extensions.quality.near_duplicates import clusters, near_duplicates
from prep_assets.extensions.quality.pairs import pair_answers
from prep_assets.extensions.quality.private_data import private_data
from prep_assets.extensions.quality.private_places import decoded, places, plain
from prep_assets.extensions.quality.proofs.private_data import private_data_left
from prep_assets.extensions.quality.redaction import FORMS, KINDS, _values, countries_of, redacted, values_of
from prep_assets.extensions.quality.rl_golds import boxed_equal, equal_answers, final_answer
from prep_assets.extensions.quality.steps import Examples, Step, configured_steps, quality_steps, tried_on_itself
from prep_assets.extensions.quality.swapped_labels import swapped_labels
from prep_assets.extensions.quality.tool_calls import tool_calls
from prep_assets.samples import TOOL_CALL, Contrast, Example, Pair, Prompt, Region, Sample, Turn, document, turn
from prep_assets_tests.cells import cells
from prep_assets_tests.conftest import ROOT
from prep_assets_tests.corpus.private_data import SENTENCES, planted
from prep_assets_tests.corpus.words import ODD, TEXTS, sentences, words_of
from prep_assets_tests.extensions.exports.readers import reader

NEEDED: Mapping[str, dict[str, Any]] = {"language": {"keep": ["en"]}}


def of(texts: list[str]) -> Examples:
    """Documents."""
    return Examples([f"rows.jsonl:{number + 1}" for number in range(len(texts))], list(map(document, texts)))


# -- every step ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", quality_steps())
def test_a_step_finds_what_it_must_and_stands_on_the_page(name: str) -> None:
    [step] = configured_steps({name: NEEDED.get(name, {})}, quality_steps()[name].takes[0])
    [(reason, found)] = tried_on_itself(step)
    assert found
    page = (ROOT / "docs/quality.md").read_text("utf-8")
    assert f"| `{name}` |" in page and f"`{reason}`" in page


@pytest.mark.parametrize(
    ("steps", "fault"),
    [
        ({"near_duplicate": {}}, "did you mean 'near_duplicates'"),
        ({"near_duplicates": {"bucket": 3}}, "has no option 'bucket'"),
        ({"near_duplicates": {"keep": "last"}}, "option 'keep' = 'last'"),
        ({"near_duplicates": {"words": 0}}, "greater than or equal to 1"),
        ({"language": {}}, "needs the option 'keep'"),
        ({"language": {"keep": ["english"]}}, "keep has english, which py3langid does not know"),
        ({"language": {"keep": ["en"], "among": ["en", "xx"]}}, "xx is no language that py3langid knows"),
        ({"language": {"keep": ["en"], "among": ["de"]}}, "`among` leaves out"),
    ],
)
def test_options_mean_something_or_are_an_error(steps: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        [step.make() for step in configured_steps(steps, Sample)]


def test_parts_have_roles() -> None:
    pair = Pair((turn("user", "Q"),), (turn("assistant", "A"),), (turn("assistant", "B"),))
    examples = Examples(["r:0", "r:1"], [pair, Prompt((turn("user", "Q"),), "4")])
    assert examples.parts == [[("user", "Q"), ("chosen", "A"), ("rejected", "B")], [("user", "Q"), ("answer", "4")]]
    assert examples.texts == ["Q\n\nA\n\nB", "Q\n\n4"]


# -- near-duplicates ----------------------------------------------------------------------------------------------------------------------


def test_clusters_are_the_components_of_shared_digests() -> None:
    """Against a search for components by sets."""
    chance = np.random.default_rng(7)
    for _ in range(50):
        bands, kept = chance.integers(0, 12, (40, 2)).astype(np.uint64), chance.random(40) < 0.8
        expected = {number: {number} for number in range(40)}
        for left in range(40):
            for right in range(left):
                meet = any(a == b != 0 for a, b in zip(bands[left].tolist(), bands[right].tolist(), strict=True))
                if meet and kept[left] and kept[right] and expected[left] is not expected[right]:
                    merged = expected[left] | expected[right]
                    expected.update(dict.fromkeys(merged, merged))
        assert clusters(bands, kept).tolist() == [min(expected[number]) for number in range(40)]


def test_planted_twins_are_found_and_others_are_not() -> None:
    """Overlaps are computed exactly here."""
    texts = twins()
    step = near_duplicates()
    for half in (texts[:500], texts[500:]):
        step.judge(of(half))
    judged = step.finish(np.ones(len(texts), bool))
    overlap = [jaccard(texts[at], texts[at + 1]) for at in range(0, 2000, 2)]
    near = [2 * at + 1 for at, share in enumerate(overlap) if share >= 0.8]
    far = [2 * at + 1 for at, share in enumerate(overlap) if share < 0.3]
    assert len(near) > 500 and len(far) > 150
    assert len(set(near) & set(judged.found)) >= 0.97 * len(near)
    assert not set(far) & set(judged.found)
    assert all(number % 2 for number in judged.found), "the first of two stays"
    assert all(judged.notes["cluster"][number] == judged.notes["cluster"][number - 1] == number - 1 for number in judged.found)


def twins() -> list[str]:
    """2,000 texts, each second one like the one before but for 1 to 60 of its 200 words."""
    chance = random.Random(11)
    vocabulary, texts = ["".join(chr(97 + int(digit)) for digit in f"{number:04}") for number in range(5000)], list[str]()
    for _ in range(1000):
        words = chance.choices(vocabulary, k=200)
        texts.append(" ".join(words))
        for place in chance.sample(range(200), chance.choice((1, 2, 3, 30, 60))):
            words[place] = chance.choice(vocabulary)
        texts.append(" ".join(words))
    return texts


@pytest.mark.readers
def test_clusters_are_those_of_datatrove_by_its_signatures(tmp_path: Path) -> None:
    """Its first three stages, as they are published but for the words, which are cut at white space; and what our own hash finds beside that."""
    minhash, document_of, texts = reader("datatrove.pipeline.dedup.minhash"), reader("datatrove.data").Document, twins()
    hashing = reader("datatrove.utils.hashing").HashConfig(hash_fc="sha1", precision=64)
    config = minhash.MinhashConfig(n_grams=5, num_buckets=14, hashes_per_bucket=8, hash_config=hashing)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(minhash, "load_word_tokenizer", lambda language: SimpleNamespace(word_tokenize=str.split))
        signatures = minhash.MinhashDedupSignature(str(tmp_path / "signatures"), config)
    folders = [str(tmp_path / name) for name in ("signatures", "buckets", "clusters")]
    signatures.run([document_of(text=text, id=str(number)) for number, text in enumerate(texts)])
    for bucket in range(14):
        minhash.MinhashDedupBuckets(folders[0], folders[1], config=config).run(rank=bucket, world_size=14)
    minhash.MinhashDedupCluster(folders[1], folders[2], config, save_cluster_id=True).run()
    pairs = np.fromfile(tmp_path / "clusters" / "000000.clusters", "<u4").reshape(-1, 2).tolist()
    theirs = dict[int, set[int]]()
    for number, cluster in pairs:
        theirs.setdefault(cluster, set()).add(number)

    bands = np.array(
        [
            [xxhash.xxh3_64_intdigest(str(band).encode()) for band in signatures.get_signature(signatures.get_shingles(text))]
            for text in texts
        ],
        np.uint64,
    )
    ours = dict[int, set[int]]()
    for number, first in enumerate(clusters(bands, np.ones(len(texts), bool)).tolist()):
        ours.setdefault(first, set()).add(number)
    assert sorted(map(sorted, theirs.values())) == sorted(sorted(members) for members in ours.values() if len(members) > 1)

    step = near_duplicates()
    step.judge(of(texts))
    found = {number // 2 for number in step.finish(np.ones(len(texts), bool)).found}
    removed = {number // 2 for number in np.fromfile(tmp_path / "clusters" / "000000.remove", "<u4").tolist()}
    overlaps = [jaccard(texts[2 * pair], texts[2 * pair + 1]) for pair in found ^ removed]
    assert len(overlaps) < 100 and all(0.3 < overlap < 0.9 for overlap in overlaps), "another hash decides at the threshold"


def jaccard(left: str, right: str) -> float:
    """The overlap of two texts' 5-grams of words, exactly."""
    first, second = ({tuple(words[at : at + 5]) for at in range(len(words) - 4)} for words in (left.split(), right.split()))
    return len(first & second) / len(first | second)


def test_one_of_a_cluster_stays_the_first_or_the_longest_of_those_that_are_left() -> None:
    base = " ".join(f"word{number}" for number in range(300))
    texts = [base, "something else", base + " and", base + " and more", ""]
    for keep, kept, expected in (("first", [1, 1, 1, 1, 1], {2, 3}), ("longest", [1, 1, 1, 1, 1], {0, 2}), ("first", [0, 1, 1, 1, 1], {3})):
        step: Step = near_duplicates(keep=keep)  # type: ignore[arg-type]
        step.judge(of(texts))
        assert set(step.finish(np.array(kept, bool)).found) == expected
    assert near_duplicates().finish(np.zeros(0, bool)).found == {}


@pytest.mark.parametrize("count", [400, pytest.param(3000, marks=pytest.mark.soak)])
def test_swapped_labels_are_found_where_answers_can_be_told_apart(count: int) -> None:
    """One in twenty pairs is swapped; among pairs that nobody can tell apart nothing is found."""
    chance = random.Random(11)
    good, bad = [f"good{n}" for n in range(9)], [f"bad{n}" for n in range(9)]

    def judged(share: int) -> tuple[set[int], set[int]]:
        pairs, planted = [], set(range(0, count, 20))
        for number in range(count):
            sides = [" ".join(chance.choices(good, k=30 - bad_words) + chance.choices(bad, k=bad_words)) for bad_words in (5, share)]
            answers = [(turn("assistant", text),) for text in (sides[::-1] if number in planted else sides)]
            pairs.append(Pair((turn("user", "Q"),), *answers))
        step = swapped_labels()
        for half in (pairs[: count // 3], pairs[count // 3 :]):
            step.judge(Examples([f"r:{number}" for number in range(len(half))], half))
        judged = step.finish(np.ones(count, bool))
        assert len(judged.notes["probability"]) == count
        return set(judged.found), planted

    found, planted = judged(20)
    assert found == planted
    assert judged(5)[0] == set()


def test_pairs_that_are_dropped_teach_nothing_and_few_pairs_say_nothing() -> None:
    pairs = [Pair((turn("user", "Q"),), (turn("assistant", f"yes {n}"),), (turn("assistant", f"no {n}"),)) for n in range(80)]
    pairs[7] = Pair(pairs[7].prompt, pairs[7].rejected, pairs[7].chosen)
    for kept, expected in ((range(80), {7}), (range(8), set()), ([n for n in range(80) if n != 7], set())):
        step = swapped_labels()
        step.judge(Examples([f"r:{number}" for number in range(80)], pairs))
        assert set(step.finish(np.isin(np.arange(80), list(kept))).found) == expected


SEARCH = {
    "name": "search",
    "parameters": {"type": "object", "properties": {"q": {"type": "string"}, "n": {"type": "integer"}}, "required": ["q"]},
}


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ({"name": "search", "arguments": {"q": "x"}}, ""),
        ({"name": "serach", "arguments": {"q": "x"}}, "unknown_tool"),
        ({"name": "search", "arguments": {"n": 1}}, "wrong_arguments"),
        ({"name": "search", "arguments": {"q": "x", "m": 1}}, "wrong_arguments"),
        ({"name": "search", "arguments": {"q": "x", "n": "one"}}, "wrong_arguments"),
        ({"name": "any", "arguments": {"whatever": 1}}, ""),
        ({"name": "odd", "arguments": {"x": 1}}, ""),
        ({"name": "odd", "arguments": {"y": 1}}, "wrong_arguments"),
        ({"name": "open", "arguments": {"x": 1, "y": 2}}, ""),
        ({"name": "far", "arguments": {}}, ""),
    ],
)
def test_calls_are_held_to_the_tools_on_offer(call: dict[str, Any], reason: str) -> None:
    tools = (
        {"type": "function", "function": SEARCH},
        {"type": "function", "function": {"name": "any"}},
        {"type": "function", "function": {"name": "odd", "parameters": {"type": "dict", "properties": {"x": {}}}}},
        {"name": "open", "parameters": {"type": "object", "properties": {"x": {}}, "additionalProperties": True}},
        {"name": "far", "parameters": {"$ref": "https://example.com/schema.json"}},
        {"type": "web_search"},
    )
    called = Turn("assistant", (Region(TOOL_CALL, json.dumps(call)),))
    samples = [Sample((turn("user", "Q"), called), tools=offered) for offered in (tools, ())]
    found = tool_calls().judge(Examples(["r:0", "r:1"], samples)).found
    assert {number: about[0] for number, about in found.items()} == ({0: reason} if reason else {})
    assert all("x" not in about[1].split() for about in found.values()), "no text of the example stands in a verdict"


# -- golds and pairs ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("She has 3*4=<<3*4=12>>12.\n#### 12", ""),
        ("She has 3*4=<<3*4=13>>13.\n#### 13", "wrong_calculation"),
        ("It is <<50%*80=40>>40, then <<40/3=13.33>>13.33.\n#### 13.33", ""),
        ("It is <<40/3=14>>14.\n#### 14", "wrong_calculation"),
        ("Half is <<50%*80=400>>400.\n#### 400", "wrong_calculation"),
        ("Half is <<50%*80=40>>40, then <<200*10%=20>>20 and <<12.5%*80=10>>10.\n#### 10", ""),
        ("It is <<200*10%=2>>2.\n#### 2", "wrong_calculation"),
        ("In all <<48+16=64>>64 points.\n#### 66", "answer_differs"),
        ("So it costs $1,200 in all.\n#### 1200", ""),
        ("So it costs $1,200 in all.\n#### 1300", "answer_differs"),
        ("Nothing to see <<a+b=c>> <<__import__('os')=1>> <<1/0=5>>.", ""),
        ("#### yes", ""),
        ("Nothing is left: <<4-4=0>>0.\n#### 1", "answer_differs"),
        ("It is <<a=b>>.\n#### 1", ""),
        ("It is <<75 % * 80=65>>65.", "wrong_calculation"),
        ("It is <<2 x 3=6>>6, <<2x-1=3>>3 and <<6÷2·4−1=12>>12.", "wrong_calculation"),
        ("We add.\n#### 2 steps\nThen 2 + 3 = 5.", ""),
    ],
)
def test_golds_are_worked_out_again(text: str, reason: str) -> None:
    found = gold_answers().judge(of([text])).found
    assert (found[0][0] if found else "") == reason


def test_a_prompt_ends_with_its_gold() -> None:
    prompts = [
        Prompt((turn("user", f"Q\n#### {end}"),), gold) for end, gold in (("5", "5"), ("5", "5.0"), ("5", "6"), ("Limits\nn < 5", "6"))
    ]
    assert list(gold_answers().judge(Examples(["r:0", "r:1", "r:2", "r:3"], prompts)).found) == [2]


def test_corrupted_golds_of_gsm8k_are_found(real_data: Path) -> None:
    """1,000 rows with a wrong result in a note, and 1,000 with another final answer; rows as they are raise few alarms."""
    rows = [json.loads(line)["answer"] for line in (real_data / "gsm8k/train.jsonl").read_text("utf-8").splitlines()]
    chance = random.Random(3)
    sample = [row for row in chance.sample(rows, 1100) if re.search(r"\d>>", row)][:1000]
    notes = [re.sub(r"=(\d+)(?=>>)", lambda found: f"={int(found[1]) + 1}", row, count=1) for row in sample if re.search(r"=\d+>>", row)]
    finals = [
        re.sub(r"#### (\S+)", lambda found: f"#### {int(found[1].replace(',', '')) + chance.choice((-10, -1, 1, 2, 10))}", row)
        for row in sample
    ]
    assert len(gold_answers().judge(of(notes)).found) == len(notes) > 900
    assert len(gold_answers().judge(of(finals)).found) >= 0.99 * len(finals)
    assert len(gold_answers().judge(of(rows)).found) < 0.005 * len(rows)


@pytest.mark.parametrize(
    ("gold", "answer", "alone"),
    [("12 cm", "12 m", True), ("1010_2", "1010_3", True), ("-10", "10-20", True), ("7/2", "3 1/2", False), ("12", "€12", False)],
)
def test_answers_are_prepared_where_math_verify_alone_is_wrong(gold: str, answer: str, alone: bool) -> None:
    """Once the library judges one of these rightly, its preparation can go."""
    assert boxed_equal(gold, answer) is alone and equal_answers(gold, answer) is not alone


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>1</think><answer> 18 </answer> and <answer>19</answer>", "19"),
        ("So it is 3.\n#### 3 \n", "3"),
        ("so \\boxed{1} or \\boxed{\\frac{1}{2}}.", "\\frac{1}{2}"),
        ("so \\boxed{1", None),
        ("#### Solution\nWe add: \\boxed {5}.", "5"),
        ("#### 1. We add\nand so on", None),
        ("#### $5\r\nI hope that this helps.", "$5"),
        ("We add.\n#### two\n", "two"),
        ("<Answer>6</Answer>", "6"),
        ("so \\fbox{6}", "6"),
        ("It is 3.", None),
    ],
)
def test_the_final_answer_of_a_text(text: str, answer: str | None) -> None:
    assert final_answer(text) == answer


@cells(
    ("gold", "verifier", "reason"),
    [
        ("\\frac{3}{4}", "math", ""),
        ("3/4", "math", ""),
        ("$x^2 + 1$", "math", ""),
        ("three quarters", "math", ""),
        ("three quarters", "math_bare", "gold_rejected"),
        ("\\frac{1}{2}", "math_bare", ""),
        ("We add. So it is $\\boxed{\\frac{1}{2}}$.", "math_bare", ""),
        ("$2\\pi$", "math_bare", ""),
        ("2\\pi", "math_bare", "gold_rejected"),
        ("10^{-3}", "math_bare", "gold_rejected"),
        ("}", "math", "gold_rejected"),
        *(
            (gold, "math", "")
            for gold in ("\\dfrac{7}{8}", "\\frac12", "\\sqrt{2}", "(1,2)", "[0,\\infty)", "\\{1,2\\}", "A", "Yes", "+5", "(-3)", "\\pi/2")
        ),
        ("", "model", ""),
        ("12", "number", ""),
        ("12", "maths", "unknown_verifier"),
        ("oh yes", "mine", ""),
        ("oh no", "mine", "gold_rejected"),
        ("whatever", "later", ""),
    ],
)
def test_golds_must_pass_their_own_verifier(gold: str, verifier: str, reason: str) -> None:
    verifiers = {"mine": "prep_assets_tests.quality.own_steps:says_yes", "later": "none"}
    [step] = configured_steps({"verified_golds": {"verifiers": verifiers}}, Prompt)
    judged = step.make().judge(Examples(["r:0"], [Prompt((turn("user", "Q"),), gold, verifier)]))
    assert (judged.found[0][0] if judged.found else "") == reason
    assert len(step.recipe["code"]) == 1, "of one's own function"
    assert "code" not in configured_steps({"verified_golds": {}}, Prompt)[0].recipe


def test_a_verifier_that_ends_its_process_is_named_with_the_record() -> None:
    [step] = configured_steps({"verified_golds": {"verifiers": {"mine": "prep_assets_tests.quality.own_steps:says_nothing"}}}, Prompt)
    with pytest.raises(PrepAssetsError, match="verifier mine ended with exit code 3 on r:7"):
        step.make().judge(Examples(["r:7"], [Prompt((turn("user", "Q"),), "12", "mine")]))


@pytest.mark.parametrize(
    ("chosen", "rejected", "reason"),
    [
        ("I’m sorry, but I can't help with that.", "Take the train.", "chosen_refuses"),
        ("As an AI language model, I am unable to do that.", "Take the train.", "chosen_refuses"),
        ("<think>Hm.</think>\n**Sorry, but I can’t help you with this.**", "Take the train.", "chosen_refuses"),
        ("Hello! I'm unable to do that.", "Take the train.", "chosen_refuses"),
        ("Sorry, I'm not able to say.", "Take the train.", "chosen_refuses"),
        ("I can't believe how easy it is! Take the train.", "Walk.", ""),
        ("I cannot recommend this book enough.", "No idea.", ""),
        ("I can't wait to go, and I won't lie: the train is best.", "Walk.", ""),
        ("I will not succeed, he thought.", "He thought.", ""),
        ("I can't help.", "I cannot help you.", ""),
        ("You can't miss it: take the train.", "Walk.", ""),
        ("The river is long and wide.", "The river is long and wide!", "answers_alike"),
        ("The river is long and wide.", "It has ships, fish and bridges", ""),
        ("word " * 100, "Walk there.", "lengths_differ"),
    ],
)
def test_answers_of_a_pair(chosen: str, rejected: str, reason: str) -> None:
    pair = Pair((turn("user", "Q"),), (turn("assistant", chosen),), (turn("assistant", rejected),))
    judged = pair_answers(longest_ratio=20).judge(Examples(["r:0"], [pair]))
    assert (judged.found[0][0] if judged.found else "") == reason
    assert judged.notes == {"longer": [len(chosen) - len(rejected)]}


# -- rules of datatrove -------------------------------------------------------------------------------------------------------------------

PIECES = [
    *("the", "be", "a", "#", "...", "-", "•", "12", "house", "and", "Ends.", "So?", '"Yes!"', "[1]", "{", "Javascript"),
    *("Lorem ipsum", "use cookies"),
]
RULES: Mapping[str, tuple[Step, str, str]] = {
    "gopher_quality": (gopher.gopher_quality(), "GopherQualityFilter", "gopher_quality_filter"),
    "gopher_repetition": (gopher.gopher_repetition(), "GopherRepetitionFilter", "gopher_repetition_filter"),
    "c4_quality": (web_pages.c4_quality(), "C4QualityFilter", "c4_filters"),
    "fineweb_quality": (web_pages.fineweb_quality(), "FineWebQualityFilter", "fineweb_quality_filter"),
}
"""Step, datatrove's filter, its module."""
SPLIT = {
    "split_into_words": lambda text, language: words_of(text),
    "split_into_sentences": lambda text, language: [""] * sentences(text),
}
"""What a word is, and a sentence: our rules, in the place of spaCy's."""


@pytest.mark.readers
@pytest.mark.parametrize("name", RULES)
@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=30).map(" ".join), max_size=8))
def test_rules_are_those_of_datatrove_with_the_same_words(name: str, lines: list[str]) -> None:
    assert differ_from_datatrove(name, ["\n".join(lines)]) == 0


def real_texts(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Up to 300 texts of each data set, by its name."""
    of, rows = folder / "llama_factory", lambda path: [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    yield "C4", [row["text"] for row in rows(of / "c4_demo.jsonl")]
    yield "Wikipedia", [*filter(str.strip, (of / "wiki_demo.txt").read_text("utf-8").split("\n"))]
    for name, file in (("Alpaca", "alpaca_en_demo.json"), ("Chinese Alpaca", "alpaca_zh_demo.json")):
        chats = json.loads((of / file).read_text("utf-8"))
        yield name, ["\n\n".join(filter(None, (row["instruction"], row.get("input"), row["output"]))) for row in chats]
    dialogues = gzip.decompress((folder / "hh_rlhf/harmless_base_1500.jsonl.gz").read_bytes()).decode().splitlines()
    yield "HH-RLHF", [json.loads(line)["chosen"] for line in dialogues]
    yield "GSM8K", [f"{row['question']}\n\n{row['answer']}" for row in rows(folder / "gsm8k/train.jsonl")]
    calls = json.loads((of / "glaive_toolcall_en_demo.json").read_text("utf-8"))
    yield "tool calls", ["\n\n".join(turn["value"] for turn in row["conversations"]) for row in calls]


@pytest.mark.readers
def test_rules_on_real_rows_differ_from_datatrove_as_the_page_says(real_data: Path) -> None:
    """With spaCy's words, which are not ours."""
    reader("spacy")
    document_of, filters = reader("datatrove.data").Document, reader("datatrove.pipeline.filters")
    lines = [f"| rows | {' | '.join(f'`{name}`' for name in RULES)} |", "|---" * (1 + len(RULES)) + "|"]
    for name, texts in real_texts(real_data):
        cells = list[str]()
        for step, filter_, _ in RULES.values():
            found, theirs, differing = step.judge(of(texts[:300])).found, getattr(filters, filter_)(), Counter[str]()
            for number, text in enumerate(texts[:300]):
                verdict = theirs.filter(document_of(text=text, id="0"))
                if (verdict is True) == (number in found):
                    differing[f"+ {found[number][0].partition('_')[2]}" if number in found else f"− {verdict[1]}"] += 1
            cells.append(", ".join(f"{sign[0]}{count} {sign[2:]}" for sign, count in sorted(differing.items())) or "0")
        lines.append(f"| {name}, {len(texts[:300])} | {' | '.join(cells)} |")
    figures, page = "\n".join(["", *lines, "", ""]), (ROOT / "docs" / "quality.md").read_text("utf-8")
    marked = re.compile(r"(?<=<!-- rows of datatrove's verdicts -->\n).*?(?=<!-- end of figures -->)", re.DOTALL)
    if os.environ.get("PREP_ASSETS_WRITE_DOCS"):
        (ROOT / "docs" / "quality.md").write_text(page := marked.sub(lambda _: figures, page), "utf-8")
    assert marked.findall(page) == [figures]


def differ_from_datatrove(name: str, texts: list[str], split: Mapping[str, Any] = SPLIT) -> int:
    """How many texts datatrove keeps and we do not, or the other way round."""
    step, of_filter, of_module = RULES[name]
    document_of, filters = reader("datatrove.data").Document, reader("datatrove.pipeline.filters")
    differing = 0
    with pytest.MonkeyPatch.context() as patch:
        module = reader(f"datatrove.pipeline.filters.{of_module}")
        for function, ours in split.items():
            if hasattr(module, function):
                patch.setattr(module, function, ours)
        theirs = getattr(filters, of_filter)()
        for text in texts:
            try:
                kept = theirs.filter(document_of(text=text, id="0")) is True
            except ZeroDivisionError:  # datatrove has no rule for a text without words
                kept = False
            differing += (not step.judge(of([text])).found) != kept
    return differing


@pytest.mark.parametrize(
    ("text", "reason", "left_out"),
    [
        ("One line has words. " * 5, "", 0),
        ("One line has words.\n" * 4, "c4_too_few_sentences", 0),
        ("One line has words.\n" * 5 + "Two words.\nNo end here it is\nIt goes on and on...", "", 3),
        ("One line has words.[12]\n" * 5, "", 0),
        ("One line has words.\n" * 5 + "It needs Javascript to run.\nWe use cookies on pages.", "", 2),
        ("One line has words.\n" * 5 + "Lorem ipsum is no Javascript.", "c4_lorem_ipsum", 0),
        ("One line has words.\n" * 5 + "int main() { is code.", "c4_curly_bracket", 0),
        ("One line has words.\n" * 5 + "a" * 1001 + " is too long.", "", 1),
    ],
)
def test_pages_of_c4(text: str, reason: str, left_out: int) -> None:
    judged = web_pages.c4_quality().judge(of([text]))
    assert (judged.found[0][0] if judged.found else "", judged.notes) == (reason, {"lines_left_out": [left_out]})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "fineweb_empty"),
        (
            "This is a line of more than thirty characters.\n它在这里结束，而这一行有三十多个字，所以它不是一条短行，大家都可以看到这一点。",
            "",
        ),
        ("This is a line of more than thirty characters\n" * 9, "fineweb_line_punctuation"),
        ("Short.\n" * 3 + "This is a line of more than thirty characters.", "fineweb_short_lines"),
        ("This is a line of more than thirty characters.\n" * 2, "fineweb_repeated"),
        ("It_is_one_word_of_more_than_thirty_characters.\n\n\n\nAnd_this_is_one_more_such_word_that_is_long.", "fineweb_list"),
    ],
)
def test_pages_of_fineweb(text: str, reason: str) -> None:
    found = web_pages.fineweb_quality().judge(of([text])).found
    assert (found[0][0] if found else "") == reason


# -- private data -------------------------------------------------------------------------------------------------------------------------


@cells(
    ("text", "redacted_text"),
    [
        # what follows a number is not part of it
        ("Pay with 4111 1111 1111 1111 12/27 123", "Pay with <CREDIT_CARD> 12/27 123"),
        ("4242 4242 4242 4242 4111-1111-1111-1111", "<CREDIT_CARD> <CREDIT_CARD>"),
        ("IBAN ES91 2100 0418 4502 0005 1332 BIC CAIXESBBXXX", "IBAN <IBAN_CODE> BIC CAIXESBBXXX"),
        ("4111.1111.1111.1111, 3782.822463.10005, DE89.3704.0044.0532.0130.00. Bye", "<CREDIT_CARD>, <CREDIT_CARD>, <IBAN_CODE>. Bye"),
        ("4222222222222 and 400000000006", "<CREDIT_CARD> and 400000000006"),
        # any sign between the groups that cards have, and a last group of one digit; other groups with other signs are no card
        ("4012/8888/8888/1881, 4222 2222 2222 2 and 4012_8888_8888_1881", "<CREDIT_CARD>, <CREDIT_CARD> and <CREDIT_CARD>"),
        ("4012 - 8888 - 8888 - 1881; 4012  8888  8888  1881; 4012·8888·8888·1881", "<CREDIT_CARD>; <CREDIT_CARD>; <CREDIT_CARD>"),
        ("40/12/88/88/88/88/18/81 4012/8888-8888/1881", "40/12/88/88/88/88/18/81 4012/8888-8888/1881"),
        ("+4012888888881881, %B4012888888881881^A/B and 6011113262439404 980", "+<CREDIT_CARD>, %B<CREDIT_CARD>^A/B and <CREDIT_CARD> 980"),
        ("IBANES9121000418450200051332 DE89/3704/0044/0532/0130/00", "IBAN<IBAN_CODE> <IBAN_CODE>"),
        ("Call +49 30 901820 2024-05-06, or +1 415 555 2671 94105", "Call <PHONE_NUMBER> 2024-05-06, or <PHONE_NUMBER> 94105"),
        # nor is what stands before it, and a number inside another is none
        ("DE89 3704 0044 0532 0130 00", "<IBAN_CODE>"),
        ("0044 20 7946 0018", "<PHONE_NUMBER>"),
        # Mastercard's second series, American Express
        ("2223 0031 2200 3222 and 378282246310005", "<CREDIT_CARD> and <CREDIT_CARD>"),
        # other spaces, hyphens and digits; lower case; dashes
        ("4111\u00a01111\u00a01111\u20111111, ４１１１１１１１１１１１１１１１", "<CREDIT_CARD>, <CREDIT_CARD>"),
        ("de89370400440532013000, DE89-3704-0044-0532-0130-00", "<IBAN_CODE>, <IBAN_CODE>"),
        # Markdown, lists, letters of other scripts beside it
        (
            "_anna.b@mail.ru_ -x@y.org .q@w.com **+34 612 345 678**",
            "_<EMAIL_ADDRESS>_ -<EMAIL_ADDRESS> .<EMAIL_ADDRESS> **<PHONE_NUMBER>**",
        ),
        ("_wei@почта.рф_ and __zoe_b@пример.рф, a@mail.ru", "_<EMAIL_ADDRESS>_ and __<EMAIL_ADDRESS>, <EMAIL_ADDRESS>"),
        ("ANNA@MAIL.RU", "<EMAIL_ADDRESS>"),
        (
            "...anna@mail.ru ...zoe@münchen.de, см...anna.b@почта.рф, ...太郎@例子.公司",
            "...<EMAIL_ADDRESS> ...<EMAIL_ADDRESS>, см...<EMAIL_ADDRESS>, ...<EMAIL_ADDRESS>",
        ),
        ("_git@github.com:org/repo.git_, git@münchen.de:org/repo.git", "_git@github.com:org/repo.git_, git@münchen.de:org/repo.git"),
        ("почта@пример.рф, 请联系anna@mail.ru之前", "<EMAIL_ADDRESS>, 请联系<EMAIL_ADDRESS>之前"),
        # ids of China and Brazil, and the same with another digit
        ("11010519491231002X, 110105194912310021", "<NATIONAL_ID>, 110105194912310021"),
        ("529.982.247-25, 529.982.247-26, 529.982.246-25", "<NATIONAL_ID>, 529.982.247-26, 529.982.246-25"),
        # keys of services
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "aws_secret_access_key = <SECRET>"),
        ("https://hooks.slack.com/services/T0000ABC/B0000ABC/abcdefabcdef", "<SECRET>"),
        ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQOY\n-----END PGP PRIVATE KEY BLOCK-----", "<SECRET>"),
        ("http://104.16.132.229:8080/x", "http://<IP_ADDRESS>:8080/x"),
        # cards as lists and tables have them; numbers that are no card in lists, prices, sums and addresses
        ("4012,8888,8888,1881; 4012|8888|8888|1881|12|27; 3782:822463:10005", "<CREDIT_CARD>; <CREDIT_CARD>|12|27; <CREDIT_CARD>"),
        (
            "[4012, 8888, 8888, 1881] 4012 | 8888 | 8888 | 1881, 4012+8888+8888+1881",
            "[4012, 8888, 8888, 1881] 4012 | 8888 | 8888 | 1881, 4012+8888+8888+1881",
        ),
        ("1200,4012,8888,8888,1881 4,222,222,222,222 4.222.222.222.222", "1200,4012,8888,8888,1881 4,222,222,222,222 4.222.222.222.222"),
        ("2600:1406:8888:1888:: and 1.234,50 €, 48.8566,2.3522", "2600:1406:8888:1888:: and 1.234,50 €, 48.8566,2.3522"),
        # a number behind a phone number of Germany, whose numbers have up to 15 digits; cards in one row; letters right behind an IBAN
        ("+49 30 90181489 94105, 0049 30 90181489 10115 B", "<PHONE_NUMBER> 94105, <PHONE_NUMBER> 10115 B"),
        (
            "4012|8888|8888|1881|4111|1111|1111|1111, 4012|8888|8888|1881|4111|1111, 4012 8888 8888 1881|4111 1111 1111 1111",
            "<CREDIT_CARD>|<CREDIT_CARD>, 4012|8888|8888|1881|4111|1111, <CREDIT_CARD>|<CREDIT_CARD>",
        ),
        ("+91-80-4112-6225 2024-05-06", "<PHONE_NUMBER> 2024-05-06"),
        # dates, months and times behind numbers that may be longer, and groups of numbers that look like dates
        (
            "+49 30 901820 12/27, +49 30/901820 05.12. and +43 1 58801 12.05.2024",
            "<PHONE_NUMBER> 12/27, <PHONE_NUMBER> 05.12. and <PHONE_NUMBER> 12.05.2024",
        ),
        ("0049 30 90181234 24/12, +49 171 1234567 9:30, +43 1/58 80 10", "<PHONE_NUMBER> 24/12, <PHONE_NUMBER> 9:30, <PHONE_NUMBER>"),
        ("IBAN:DE89370400440532013000BIC:X, ES91 2100 0418 4502 0005 1332EUR", "IBAN:<IBAN_CODE>BIC:X, <IBAN_CODE>EUR"),
        # what is encoded or spelt
        ("anna.b%40mail.ru, anna&#46;b&commat;mail&period;ru, anna&#x40;mail.ru", "<EMAIL_ADDRESS>, <EMAIL_ADDRESS>, <EMAIL_ADDRESS>"),
        ("mailto:%61nna%2Eb%2540mail.ru?cc=1 and anna\\u0040mail.ru\\nBye", "mailto:<EMAIL_ADDRESS>?cc=1 and <EMAIL_ADDRESS>\\nBye"),
        ("anna (at) mail (dot) ru, anna.b[AT]mail.ru; an\u200bna@\u200bmail.ru", "<EMAIL_ADDRESS>, <EMAIL_ADDRESS>; <EMAIL_ADDRESS>"),
        ("tel:%2B49%2030%20901820&x=4012%208888%208888%201881", "tel:<PHONE_NUMBER>&x=<CREDIT_CARD>"),
        ("8[.]8[.]8[.]8 and zoe@post.xn--p1ai", "<IP_ADDRESS> and <EMAIL_ADDRESS>"),
        (
            "git%40github.com:a/b.git, user&#64;example.com, f(at)x, 40%20mm",
            "git%40github.com:a/b.git, user&#64;example.com, f(at)x, 40%20mm",
        ),
        # what pages put inside a value and between cells; addresses behind a colon
        (
            "joe<b>@</b>mail.ru, joe<!-- x -->@mail<wbr>.ru, <b>joe@mail.ru</b>and",
            "<EMAIL_ADDRESS>, <EMAIL_ADDRESS>, <b><EMAIL_ADDRESS></b>and",
        ),
        (
            "<td>Card</td><td>4012</td>\n  <td>8888</td>\n  <td>8888</td>\n  <td>1881</td>",
            "<td>Card</td><td><CREDIT_CARD></td>",
        ),
        (
            "<tr><td>4012</td><td>8888</td><td>8888</td><td>1881</td></tr>",
            "<tr><td>4012</td><td>8888</td><td>8888</td><td>1881</td></tr>",
        ),
        ("IP:8.8.8.8, host:8.8.4.4:80, ::ffff:8.8.8.8", "IP:<IP_ADDRESS>, host:<IP_ADDRESS>:80, ::ffff:<IP_ADDRESS>"),
        # dashes between words, ellipses, words before a colon, emphasis
        ("write to anna.b@mail.ru—thanks, or—zoe@mail.ru—to me", "write to <EMAIL_ADDRESS>—thanks, or—<EMAIL_ADDRESS>—to me"),
        (
            "[IPv6:2606:4700:4700::1111] ...8.8.8.8... and f:2606:4700:4700::1111",
            "[IPv6:<IP_ADDRESS>] ...<IP_ADDRESS>... and f:2606:4700:4700::1111",
        ),
        (f"o'neil@münchen.de, _{'AKIA' + 'Q7' * 8}_", "<EMAIL_ADDRESS>, _<SECRET>_"),
        ('{"version": "8.1.2.3"}, build: 8.1.2.3, Chrome/8.1.2.3', '{"version": "8.1.2.3"}, build: 8.1.2.3, Chrome/8.1.2.3'),
        # what belongs to nobody
        ("Section 4.1.2.3, chapter 8.2.1.4", "Section 4.1.2.3, chapter 8.2.1.4"),
        ("git clone git@github.com:org/repo.git", "git clone git@github.com:org/repo.git"),
        ("at +86.540138, -22.252725; x = +91 914 368", "at +86.540138, -22.252725; x = +91 914 368"),
        ("224.0.0.1, 3fff::1, name@example.co.uk", "224.0.0.1, 3fff::1, name@example.co.uk"),
    ],
)
def test_private_data_and_what_stands_beside_them(text: str, redacted_text: str) -> None:
    assert redacted(text, KINDS) == redacted_text
    # the proof sees what is taken out, but for numbers with 00 in place of +, and numbers in several cells
    assert any(private_data_left(text, KINDS)) == (redacted_text != text) or "0044" in text or "<td>Card" in text
    assert not [*private_data_left(redacted_text, KINDS)]


@cells(
    "text",
    [
        "CNP {1630615123457}", "CPR: {070761-4285}", "fødselsnummer {11077941012}", "PPS number {6433435F}", "AHV-Nr. {756.9217.0769.85}", "{756.9217.0769.85}",
        "NIF {501964843}", "ת.ז. {039337423}", "National Insurance: {AB 12 34 56 C}", "NINO {AB123456C}", "South African ID {8001015009087}",
        "hetu {050405A123P}",
        "SSN: {123 45 6789}", "tel: {00 49 176 12345678}", "โทร {081-234-5678} ได้ตลอดเวลา ขอบคุณมากครับ",
        "Позвоните мне, пожалуйста, по номеру {8 (495) 123-45-67}, поговорим об аренде.",
        "rodné číslo {7103192745}", "CUIT {20-05536168-2}", "CPR: 070761-4285x", "ID 8001015009086", "AB 12 34 56 C", "NIF 501964844", "id: 1234567890123",
        "{dckr_pat_AbCdEfGhIjKlMnOpQrStUvWxYz0}", "{ya29.a0AfH6SMBx1234567890abcdefghijklmnopqr}", "{shpat_0123456789abcdef0123456789abcdef}",
        "{glptt-a1b2c3d4e5f6a1b2c3d4e5f6}", "{lin_api_A1b2C3d4E5f6A1b2C3d4E5f6A1b2C3d4E5f6A1b2}", "{GOCSPX-aB1_aB1_aB1_aB1_aB1_aB1_aB1_}",
        "secretAccessKey: '{wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzzKEY}'",
        "先月の手紙には{omar@münchen-kreis.de}と", "先月の手紙には@app.routeと", "{zoe@post.xn--p1ai}", "({+49 (0) 30 / 90 18 76 55})",
        "gsk_short", "r8_x", "卡号 {4012, 8888, 8888, 1881}", "Karte: {4 0 1 2 8 8 8 8 8 8 8 8 1 8 8 1}, 9",
    ],
)  # fmt: skip
def test_ids_behind_their_names_and_keys_of_more_services(text: str) -> None:
    """What stands in braces, and nothing else."""
    clean = re.sub("[{}]", "", text)
    assert [clean[start:end] for _, start, end in dict(values_of([clean], KINDS)).get(0, [])] == re.findall("{(.*)}", text)


@cells(
    "text",
    [
        # lines that end within a value
        "Take {4461 0033\n0766 6196} now", "Karte {3430 146730\r\n02454}, danke", "> pay {4326 9910\n> 2374 0953} 12/27", "call {+49 30\n901820} now",
        "Tel. {+1 (303)\r\n671-2562}", "IBAN {DE89 3704 0044\r\n> 0532 0130 00}, {+81<br>90-7070-2138}", "{+49 30 901820}\n94105\n17",
        "4461 0033\n0766 6196", "Sums:\n4461\n0033\n0766\n6196", "x = +49 30\n", "{4461 0033 0766 6196}\n2024 1131",
        # colours, and signs that nobody sees
        "\x1b[1;31m{81.2.69.142}\x1b[0m", "\\u001b[32m{anna@mail.ru}\\u001b[0m", "\x1b[K{DE89370400440532013000}", "\u202a{+49 151\u200e 23456789}\u202c",
        "{4012\u00ad8888\u00ad8888\u00ad1881}", "{an\u202cna@ma\u2066il.ru}",
        "You\u200bcan\u200buse\u200b{4805\u200b2424\u200b9177\u200b2932}\u200bnow", "Sie\u2060haben\u2060{81.2.69.142}\u2060und",
        "x\u200bIBAN\u200bist\u200b{DE89\u200b3704\u200b0044\u200b0532\u200b0130\u200b00}",
        # ends of addresses
        "{müller@web.de}", "{anna@mail.ru}-- yes", "{anna@mail.ru}-", "print(f'{anna@mail.ru}')", "{o'neil@mail.ru}", "मेल {अन्ना@डाटा.भारत} पर",
        "{อันนา@ไทย.ไทย}", "from {2a02:908::1234}: refused", "[{+44 7780 330404}](tel:x)",
        "Call me today at [{(415) 555-2671}](tel:x), please, we have much to talk about.",
        "{+49 30 901820}/12/27", "IDs: 身份证 {110105 19491231 002X}",
        "{glsa_a1B2c3D4a1B2c3D4a1B2c3D4a1B2c3D4_0a1b2c3d}", "{SK0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d}",
        "{-----BEGIN PRIVATE KEY-----\nxxxxxxxx\n-----END PRIVATE KEY-----}",
        # versions, headings, tables, ids in URLs, sums, prices, other numbers
        'opencv==4.6.8.44, Version="2.16.8.11", AssemblyVersion("3.9.11.16"), EC 2.5.1.18, RFC 5321 4.5.3.1', "ip.addr=={81.2.69.142}", "# 5.7.2.9 Results",
        "4648 7477 3186 3292 2486 1741", "card {4648 7477 3186 3292} 2486 1741", "https://x.com/u/status/4640716116022004517, 588665495517200384",
        "卡 {6222 0210 0111 6245 702}, my visa is {4640716116022004517}", "https://facebook.com/372083064997741", "https://x.org/?card={372083064997741}",
        "= 3600000000000 + 62426244000", "x + 49 30 901820 = y", "O valor é 960 760 553 €, e nós falamos sobre isso ontem à noite, em Lisboa.",
        "doi 10.1111/0081-1750.00098", "integers(-2147483648, 2147483647), seeds = [3134027055, 4079264063], as we said in the text before this one.",
        "y = W@x.shape or A@B.inverse(), x@self.weight", "hf_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx, ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "well...{kjell@mail.ru}...yes", "4006381333931, 4001103615203, chr7:44343873-51067706, 12 * 7 = 349236180433013", "card {4001103615203}",
        "Il valore è 11111010 01101111 01000010 11001000 e ne abbiamo parlato ieri sera.", "firmware 4.2.1.3, 这个值是EC 4.1.15.172",
        "Wartość to San Francisco, CA 81840-7498 i rozmawialiśmy o tym wczoraj wieczorem.", "Giá trị là 1900-2003 và chúng ta đã nói về điều đó tối qua.",
        "Der Wert ist 169.254.169.254 und das ist gut so, wie wir gestern gesagt haben.",
    ],
)  # fmt: skip
def test_borders_of_values_and_what_only_looks_like_one(text: str) -> None:
    """What stands in braces, and nothing else."""
    clean = re.sub("[{}]", "", text)
    found = dict(values_of([clean], KINDS)).get(0, [])
    assert [clean[start:end] for _, start, end in found] == re.findall("{([^}]*)}", text)
    assert not [*private_data_left(redacted(clean, KINDS), KINDS)]


def test_addresses_of_one_host_are_one_value_and_keys_of_aws_stand_in_pairs() -> None:
    key, secret = "AKIA" + "Q7" * 8, "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzzKEY"
    assert redacted(r"\{anna, b.zoe\}@cs.uni.edu and {x}@{host}", KINDS) == "<EMAIL_ADDRESS> and {x}@{host}"
    assert redacted(f"id,secret\n{key},{secret}", KINDS) == "id,secret\n<SECRET>,<SECRET>"


@pytest.mark.parametrize(
    ("text", "is_address"),
    [
        ("write to j.smith at mail dot ru", True),
        ("zoe AT acme DOT org", True),
        ("mail me: zoe at acme dot org", True),
        ("zoe at gmail dot com", True),
        ("anna [ät] mail [punkt] ru", True),
        ("anna &lt;at&gt; mail.ru", True),
        ("anna.b+x (at) web (dot) de까지", True),
        ("zoe {at} post {dot} acme {dot} info", True),
        ("look [at] this [dot] und so weiter", False),
        ("look (at) this (dot)までご連絡いただけます", False),
        ("look [at] this [dot] en laat ons weten", False),
        ("see us at acme dot org", False),
        ("mail us at acme dot org", False),
        ("the product is 2 at each dot here", False),
        ("look at the dot product", False),
        ("Contacto: maria @ correo.es por favor", True),
        ("user42 @ mail.ru", True),
        ("win @ chess.com is fun", False),
        ("5 @ 3.50 or meet @ noon", False),
        ("y = X_1 @ model.coef + emb.weight @ vec.data", False),
        ("escríbeme a maria arroba correo punto es", True),
        ("zoe arroba correo.es", True),
        ("scrivi a zoe chiocciola posta punto it", True),
        ("max.muster ät web punkt de", True),
        ("una arroba de trigo, y punto", False),
    ],
)
def test_addresses_that_are_spelt(text: str, is_address: bool) -> None:
    assert ("<EMAIL_ADDRESS>" in redacted(text, KINDS)) is is_address
    assert [*private_data_left(redacted(text, KINDS), KINDS)] == []


def test_national_phone_numbers_of_a_country() -> None:
    texts = ["call 030 901820 today", "version 030 901820"]
    assert private_data().judge(of(texts)).found == {}
    assert private_data(kinds=["phone"], countries=["DE"]).judge(of(texts[:1])).found == {0: ("private_phone", "1 × phone")}


@pytest.mark.parametrize(
    "text",
    [
        "Version 1.2.3 and 10.0.0.1, 192.168.1.1, 127.0.0.1 and ::1.",
        "The number 4111 1111 1111 1112 has a wrong check digit; 1234567890123 is a number.",
        "Write to user@example.com or root@localhost.",
        "From 1914-1918 to 2024-11-26 12:30:15, +5 or +123, 3.14159265358979, GB00 TEST.",
        "std::vector<int>::iterator and a::b, 12:30:45, sk-learn, ghp_short",
        "Bitte notieren Sie sich 0.4986191484265456 und 1692832364683, und geben Sie uns bis Freitag Bescheid, ob alles stimmt.",
        "An account that is none: IL37 4561 2957 8092 8628 989",
        "2 + 2 = 4, 00 1 2, +1, and the code 00632000001783 of a box.",
        "x[:, 1::2] = y[1::4], z[2::3]",
        f"https://hooks.slack.com/services/T00000000/B00000000/{'X' * 24}, sk-{'x' * 40}1, ghp_{'X' * 36}, AKIA{'X' * 16}",
        'lines += "\\n@triton.jit"; like("%@aol.com")',
        "These operators are described in the Annals of Operational Research, 86, pp 473-490. (1999), and we have read them.",
        *(f"{begin}{'14159' * 1200} and so on" for begin in ("3.", "", "DE12", "+49", "00", "1.2.3.", "SSN ")),
    ],
)
def test_what_looks_like_private_data_and_is_none(text: str) -> None:
    assert [*values_of([text], KINDS)] == [] == [*private_data_left(text, KINDS)]


def planted_or_cut(seed: int) -> str:
    """A value of some kind, every third one without its end."""
    value = planted(random.Random(seed), [*FORMS][seed % len(FORMS)])
    return value if seed % 3 else value[: seed % len(value)]


def everywhere(text: str, kinds: Sequence[PrivateKind], countries: Sequence[str] | None) -> list[tuple[str, int, int]]:
    """The values of a text whose places are the whole text, for each kind."""
    meant, starts, ends = decoded(text) or (text, np.arange(len(text)), np.arange(1, len(text) + 1))
    whole = [(0, len(meant))]
    spoken = countries_of({0: meant}).get(0, ()) if countries is None else ()
    found = _values(plain(meant), dict.fromkeys(kinds, whole), countries or (), spoken)
    return [(kind, int(starts[start]), int(ends[end - 1])) for kind, start, end in found]


PIECES = [
    *"04+x.-/ (),:\n@_A٣７。é\u00a0\u2011ー",
    "00",
    "+49",
    "de",
    "1998-2004",
    "2001:db8:1::",
    "2a00:1450:",
    "ES91 2100 0418",
    "xoxb-",
    "sk-",
    "aws key ",
    *("%40", "&#64;", " (at) ", "%20", "card", "4012,", "8888,", "\r\n> ", "\x1b[32m", "4012 8888", "x.org/"),
]
PIECES += ["-----BEGIN RSA PRIVATE KEY-----\n", "BSN ", "RSSMRA85T10A562S"]


SHORTEST = [
    *("+683 4012", "4222222222222", "050405A123P", "8.8.8.8", "2600:1::1", "NO9386011117947", "X1234567L", "AKIAQ7Q7Q7Q7Q7Q7Q7Q7"),
    *("a@b.io",),
]
"""Values of each kind with as few characters as can be."""


@given(
    st.lists(
        st.lists(st.one_of(st.integers(0, 999), st.sampled_from(PIECES)), max_size=12).map(
            lambda parts: "".join(part if isinstance(part, str) else planted_or_cut(part) for part in parts)
        ),
        max_size=4,
    ),
    st.sampled_from([None, (), ("DE", "US")]),
)
@example(SHORTEST, ("DE",))
def test_no_value_is_missed_by_the_quick_search_before(texts: list[str], countries: tuple[str, ...] | None) -> None:
    """Of values, whole and cut, among whatever is around them: what is found at the places where values may stand is what is found anywhere."""
    found = dict(values_of(texts, KINDS, countries)) if texts else {}
    assert [found.get(number, []) for number in range(len(texts))] == [everywhere(text, KINDS, countries) for text in texts]
    assert texts != SHORTEST or len(found) == len(SHORTEST)


def test_the_places_of_values_are_few() -> None:
    """Prose with years, prices and long words has none; values of every kind have each their place, in texts of any width."""
    prose = "In 1914 and 1918, on page 27, it cost 3.50 (12 of 100); characteristically, at 12:30."
    for text in (prose, f"{prose} – “é” 北京"):
        assert places(plain(text), np.array([len(text)]), KINDS) == {}
    for seed, kind in enumerate(KINDS):
        value = planted(random.Random(seed), kind)
        [(begin, end)] = places(f"{prose * 9}{value}{prose * 9}", np.array([len(prose) * 18 + len(value)]), [kind])[0][kind]
        assert begin <= len(prose) * 9 < len(prose) * 9 + len(value) <= end and end - begin < 900


def test_a_long_row_of_cards_is_a_row_of_cards() -> None:
    assert redacted("|".join(["4012|8888|8888|1881"] * 2000), ["card"]) == "|".join(["<CREDIT_CARD>"] * 2000)


def test_a_value_belongs_to_the_example_that_holds_it() -> None:
    texts = ["nothing", "a@b.org, c@d.org", "", "+49 30 1234567 and e@f.org"]
    judged = private_data(kinds=["email", "phone"]).judge(of(texts))
    assert judged.found == {1: ("private_email", "2 × email"), 3: ("private_email", "1 × email, 1 × phone")}
    assert judged.notes == {"email": [0, 2, 0, 1], "phone": [0, 0, 0, 1]}


# -- language -----------------------------------------------------------------------------------------------------------------------------


def test_languages_are_told_apart() -> None:
    from prep_assets.extensions.quality.languages import language

    codes = ["en", "es", "fr", "de", "it", "ru", "zh", "ja"]
    judged = language(keep=["de"], among=codes).judge(of([sentence.format("…") for sentence in SENTENCES]))
    assert judged.notes["language"] == codes
    assert sorted(judged.found) == [0, 1, 2, 4, 5, 6, 7]


@pytest.fixture(scope="module")
def py3langid() -> Any:
    """The library, with its model."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@settings(deadline=None)
@given(texts=st.lists(ODD | TEXTS | st.sampled_from(SENTENCES).map(str.upper) | st.text(max_size=400), max_size=5))
def test_languages_are_those_of_py3langid(py3langid: Any, texts: list[str]) -> None:
    assert identifier(None).classify(texts) == [py3langid.classify(text) for text in texts]


def test_languages_of_pages_are_those_of_py3langid(py3langid: Any) -> None:
    """Pages of this project, which are longer than what is read at a time, and one text of every sentence."""
    texts = [path.read_text("utf-8") for path in sorted((ROOT / "docs").rglob("*.md"))]
    texts += ["\n".join(SENTENCES) * times for times in (1, 40)]
    codes = ["de", "en", "sr", "zh"]
    for among in (None, tuple(codes)):
        py3langid.set_languages(among)
        assert identifier(among).classify(texts) == [py3langid.classify(text) for text in texts]
    py3langid.set_languages()


# -- what many examples share ---------------------------------------------------------------------------------------------------------------


def asked(question: str, document: str = "", system: str = "") -> Sample:
    """A chat with a document and a system prompt."""
    turns = [*([turn("system", system)] if system else []), turn("user", question), turn("assistant", "Done.")]
    return Sample(tuple(turns), documents=({"title": "t", "text": document},) if document else ())


def alike(samples: Sequence[Example]) -> list[int]:
    """Which are found to be like an earlier one, judged in blocks of three."""
    step = near_duplicates()
    for begin in range(0, len(samples), 3):
        step.judge(Examples([f"r:{at}" for at in range(begin, len(samples[begin : begin + 3]) + begin)], samples[begin : begin + 3]))
    return sorted(step.finish(np.ones(len(samples), bool)).found)


LONG = [" ".join(f"w{number}x{word}" for word in range(80)) for number in range(6)]
ASKED = ["Which word of the text is the longest, and why?", "Name every river that is mentioned here, in order."]


def test_what_examples_share_does_not_make_them_alike() -> None:
    assert alike([asked(f"{number} and then {LONG[number][:50]}", system=LONG[0]) for number in range(6)]) == []
    assert alike([asked(ASKED[0], text) for text in LONG]) == [], "they differ in their documents"
    assert alike([asked(question, text) for text in LONG[:3] for question in ASKED]) == [], "documents that several have tell others apart"
    assert alike([asked(ASKED[0], system=text) for text in LONG]) == [], "what is asked stands in the system prompt"
    dated = [asked(f"{number} and then {LONG[number][:50]}", system=f"{LONG[0]} Today is May {number}.") for number in range(6)]
    assert alike(dated) == [], "system prompts that differ in a date alone are no likeness"

    calls = Region(TOOL_CALL, '{"name": "look"}')
    results = [
        Sample((turn("user", f"Look up {LONG[number][:60]}."), Turn("assistant", (calls,)), turn("tool", LONG[0]))) for number in range(6)
    ]
    assert alike(results) == [], "results of tools that several have"
    told = [Prompt((turn("user", f"Write about {LONG[number][:60]}."),), "", "rubric", arguments=LONG[0]) for number in range(6)]
    assert alike(told) == [], "what their verifiers are told"
    queries = [Contrast(f"Which word is in {LONG[number][:60]}?", (LONG[0],), (LONG[1], LONG[2])) for number in range(6)]
    assert alike(queries) == [], "passages that several queries have"
    near = [Contrast(queries[0].query, (LONG[number],), ()) for number in (0, 1)]
    assert alike([*near, Contrast(queries[0].query, (LONG[0].replace("w0x40", "other"),), ())]) == [2]


@pytest.mark.parametrize("veiled", [
    "".join(f"{sign}\u00ad" if at % 5 == 0 else sign for at, sign in enumerate("Grüße " + LONG[0])), unicodedata.normalize("NFD", "Grüße " + LONG[0]),
    html.escape("Grüße " + LONG[0]).replace(" ", "&nbsp;").replace("ü", "&uuml;"),
], ids=ascii)  # fmt: skip
def test_soft_hyphens_entities_and_decomposed_accents_hide_no_copy(veiled: str) -> None:
    step = near_duplicates()
    step.judge(of(["Grüße " + LONG[0], LONG[1], veiled]))
    assert [*step.finish(np.ones(3, bool)).found] == [2]


def test_alike_examples_are_found_beside_what_they_share() -> None:
    assert alike([asked(question, text) for text in LONG[:3] for question in ASKED] * 2) == [6, 7, 8, 9, 10, 11]
    assert alike(
        [asked(LONG[1], system=LONG[0]), asked(LONG[1].replace("w1x40", "other"), system=LONG[0]), asked(LONG[2], system=LONG[0])]
    ) == [1]
    assert alike([asked(ASKED[0], LONG[0]), asked(ASKED[0], LONG[0].replace("w0x40", "other")), asked(ASKED[0], LONG[1])]) == [1]
    assert alike([asked(LONG[1], system=system) for system in (ASKED[0], ASKED[1])] * 2) == [1, 2, 3]
    assert alike([asked(LONG[1], system=f"Today is May {day}.") for day in range(3)] + [asked(LONG[1])]) == [1, 2, 3], "nor a difference"


def test_chinese_texts_are_compared_by_characters() -> None:
    chance = random.Random(5)
    texts = ["".join(chr(chance.randrange(0x4E00, 0x9FA0)) for _ in range(300)) for _ in range(20)]
    changed = [text[:50] + "啊" + text[51:150] + "啊" + text[151:250] + "啊" + text[251:] for text in texts]
    step = near_duplicates()
    step.judge(of([*texts, *changed]))
    assert len(step.finish(np.ones(40, bool)).found) >= 19
