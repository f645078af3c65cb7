"""open-instruct's own ``ngram_match`` on the texts that our rule of its name judges, with its index stood in for."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import regex
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prep_assets.extensions.leaks.overlap import RULES, Passages
from prep_assets.extensions.quality.steps import Examples
from prep_assets.samples import document
from prep_assets_tests.peers.checkouts import checkout

SIZE, THRESHOLD = 8, 0.5
"""What Tülu 3's page names: ``--ngram_size 8 --match_threshold 0.5``."""
Split = Callable[[str], list[tuple[int, int]]]


class Index:
    """Elasticsearch with documents in its default analyzer: words by Unicode's annex 29 in lower case; a phrase is words in a row."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._documents = [f" {' '.join(self._words(text))} " for text in texts]
        self._texts = texts

    @staticmethod
    def _words(text: str) -> list[str]:
        return [word.lower() for word in regex.split(r"(?V1w)\b", text) if re.search(r"\w", word)]

    def search(self, *, query: dict[str, Any], size: int, **_: Any) -> dict[str, Any]:
        """The documents that hold a phrase. One without words is in none."""
        [phrase] = query["bool"]["filter"]
        words = self._words(phrase["match_phrase"]["text"])
        found = [number for number, text in enumerate(self._documents) if words and f" {' '.join(words)} " in text]
        return {"hits": {"hits": [{"_id": number, "_source": {"original_id": number}} for number in found[:size]]}}


class Tokens:
    """What spaCy gives for a text, cut by a function: tokens with their number and text, and stretches of them with theirs."""

    def __init__(self, text: str, places: Sequence[tuple[int, int]], first: int = 0) -> None:
        self._all, self._places, self._first = text, places, first
        self.text = text[places[0][0] : places[-1][1]] if places else ""

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, wanted: slice) -> Tokens:
        return Tokens(self._all, self._places[wanted], self._first + wanted.start)

    def __iter__(self) -> Any:
        for number, (start, end) in enumerate(self._places, self._first):
            yield types.SimpleNamespace(i=number, text=self._all[start:end])


@pytest.fixture(scope="module")
def script() -> Any:
    """``decontamination/search.py`` of the checkout that PREP_ASSETS_OPEN_INSTRUCT names. What ``ngram_match`` does not use is empty."""
    path = checkout("PREP_ASSETS_OPEN_INSTRUCT", "open-instruct") / "decontamination/search.py"
    with pytest.MonkeyPatch.context() as patch:
        for name, names in {
            "datasets": ("Dataset", "get_dataset_config_names", "load_dataset"),
            "elasticsearch": ("Elasticsearch",),
            "open_instruct": ("utils",),
            "open_instruct.utils": (),
            "spacy": (),
        }.items():
            module = types.ModuleType(name)
            vars(module).update(dict.fromkeys(names))
            patch.setitem(sys.modules, name, module)
        sys.modules["spacy"].load = lambda name: None  # type: ignore[attr-defined]
        specification = importlib.util.spec_from_file_location("open_instruct_search", path)
        assert specification is not None and specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
    return module


def theirs(script: Any, split: Split, held_out: Sequence[str], training: Sequence[str]) -> set[tuple[int, int]]:
    """(training text, question) for each match above the threshold."""
    script.SPACY_MODEL = lambda text: Tokens(text, split(text))
    index, found = Index(training), set()
    for number, question in enumerate(held_out):
        scores = script.ngram_match(index, "index", [{"question": question}], ["question"], SIZE, len(training))[2]
        found |= {(text, number) for text, score in scores.items() if score > THRESHOLD}
    return found


def ours(held_out: Sequence[str], training: Sequence[str]) -> set[tuple[int, int]]:
    """The same by our rule."""
    examples = Examples([f"r:{number}" for number in range(len(training))], list(map(document, training)))
    leaks = Passages.of(RULES["open_instruct"], [held_out]).leaks(examples)
    return {(text, leak.text) for text, found in leaks.items() for leak in found}


def by_our_words(text: str) -> list[tuple[int, int]]:
    return RULES["open_instruct"].spans(text)


WORDS = st.lists(st.integers(0, 30).map(lambda number: f"w{number}"), max_size=30)
TEXTS = WORDS.map(" ".join)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_the_rule_says_what_its_code_says(script: Any, data: st.DataObject) -> None:
    """Its table of n-grams knows the last place of one that a question has twice, so such questions are left out."""
    held_out = [
        text
        for text in data.draw(st.lists(TEXTS, max_size=3))
        if len({*zip(*(text.split()[at:] for at in range(SIZE)), strict=False)}) == max(0, len(text.split()) - SIZE + 1)
    ]
    pieces = st.sampled_from(held_out or [""]).flatmap(
        lambda text: st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda cut: text[3 * min(cut) : 3 * max(cut)])
    )
    training = data.draw(st.lists(st.lists(st.one_of(TEXTS, pieces), max_size=4).map(". ".join), min_size=1, max_size=4))
    assert ours(held_out, training) == theirs(script, by_our_words, held_out, training)


def test_on_gsm8k_and_alpaca(script: Any, real_data: Path) -> None:
    """200 questions, planted in 200 texts of Alpaca, and 600 other rows of GSM8K, some of which are the same questions with other numbers."""
    rows = [json.loads(line) for line in (real_data / "gsm8k/train.jsonl").read_text("utf-8").splitlines()]
    alpaca = [one["output"] for one in json.loads((real_data / "llama_factory/alpaca_en_demo.json").read_text("utf-8"))[:200]]
    held_out = [row["question"] for row in rows[:200]]
    planted = [f"{text}\n{question}" for text, question in zip(alpaca, held_out, strict=True)]
    training = [*planted, *alpaca, *(row["question"] for row in rows[200:800])]
    found = ours(held_out, training)
    assert found >= {(number, number) for number in range(200)}
    assert found == theirs(script, by_our_words, held_out, training)
