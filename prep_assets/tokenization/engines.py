"""Which engine tokenizes: the fast one wherever it gives the reference's ids, text by text.

Every engine encodes **ordinary text**: a control token that is typed in the text is encoded as plain characters, never as the control token.
`ReferenceEngine` is the `tokenizers` library, which defines the right ids. `RoutedEngine` uses `gigatoken`, about forty times as fast, for every
text that holds nothing at which the two are known to part. What that is was found by encoding each code point with both, for this very tokenizer;
an edge set on which they still part leaves the reference in charge of everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prep_assets.tokenization import verdicts
from prep_assets.tokenization.code_tokenizer import CodeEngine
from prep_assets.tokenization.edge_set import edge_set, typed
from prep_assets.tokenization.fast_form import composes, without_first_space
from prep_assets.tokenization.flat import Engine
from prep_assets.tokenization.reference_engine import ReferenceEngine
from prep_assets.tokenization.routed import GigatokenEngine, RoutedEngine
from prep_assets.tokenization.sentencepiece_model import UnigramEngine
from prep_assets.tokenization.suspects import differing, suspect_table, unequal_texts
from prep_assets.tokenization.verdicts import Finding
from prep_assets.tokenization.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Engines:
    """The engines of one tokenizer.

    Attributes:
        first: for text at the very start of a document.
        rest: for text that follows a control token. It differs from `first` only for SentencePiece tokenizers that put a space in front
            of a document's first word (``prepend_scheme: first``).
        reference, rest_reference: the `tokenizers` counterparts of `first` and `rest`, for character spans and checks.
        verdict: why this engine was chosen.
    """

    first: Engine
    rest: Engine
    reference: ReferenceEngine | CodeEngine | UnigramEngine
    rest_reference: ReferenceEngine | CodeEngine | UnigramEngine
    verdict: str

    def pause(self) -> None:
        """Free what the fast engine remembers of many texts: for some time none will come."""
        for engine in (self.first, self.rest):
            if isinstance(engine, RoutedEngine):
                engine.pause()


def choose_engine(vocabulary: Vocabulary, *, reference_only: bool = False) -> Engines:
    """The fast engine where it gives the reference's ids for this very tokenizer, and the reference for the texts where it does not.

    A tokenizer that the fast engine cannot load, or that differs without a known reason, leaves the reference in charge, and the verdict says so.
    """
    if vocabulary.code is not None:
        own = CodeEngine(vocabulary.code)
        return Engines(own, own, own, own, f"{own.name}, the tokenizer itself")
    if vocabulary.unigram:
        library = UnigramEngine(vocabulary.unigram)
        return Engines(library, library, library, library, "sentencepiece, the library of the model itself")
    spec = vocabulary.spec
    rest_spec = without_first_space(spec)
    reference = ReferenceEngine(spec, vocabulary.backend)
    first, verdict = (reference, "reference only, as configured") if reference_only else _gated(vocabulary, spec, reference)
    if rest_spec is None:
        return Engines(first, first, reference, reference, verdict)
    rest_reference = ReferenceEngine(rest_spec, vocabulary.backend)
    rest: Engine = rest_reference
    if first is not reference:
        rest, rest_verdict = _gated(vocabulary, rest_spec, rest_reference)
        verdict += f"; after control tokens, {rest_verdict}"
    return Engines(first, rest, reference, rest_reference, verdict)


def _gated(vocabulary: Vocabulary, spec: dict[str, Any], reference: ReferenceEngine) -> tuple[Engine, str]:
    key = verdicts.key_of(spec, GigatokenEngine.__qualname__)
    known = verdicts.find(key)
    if known is not None and not known.fast:
        return reference, known.verdict
    try:
        fast = GigatokenEngine(spec)
    except Exception as error:  # whatever the engine cannot load is not for it
        return reference, f"tokenizers: gigatoken cannot load this tokenizer ({type(error).__name__}: {error})"
    composing = bool(composes(spec.get("normalizer")))
    found = known
    if found is None:
        found = _compared(vocabulary, spec, fast, reference, composing)
        verdicts.keep(key, found)
        fast = GigatokenEngine(spec)  # one that does not remember every code point
    if not found.fast:
        return reference, found.verdict
    return RoutedEngine(fast, reference, suspect_table(found.suspects), composes=composing), found.verdict


def _compared(vocabulary: Vocabulary, spec: dict[str, Any], fast: GigatokenEngine, reference: ReferenceEngine, composing: bool) -> Finding:
    """Encode every code point and the edge set with both."""
    texts = (*edge_set(), *typed(token["content"] for token in spec["added_tokens"]))
    normalizer = vocabulary.backend.normalizer if composing else None
    try:
        suspects = differing(fast, reference, normalizer, numerals=fast.cuts_at_digits)
        routed = RoutedEngine(fast, reference, suspect_table(suspects), composes=composing)
        unequal = unequal_texts(routed.encode(texts), reference.encode(texts))
    except Exception as error:  # an engine that fails on a text is not for this tokenizer
        return Finding(False, f"tokenizers: gigatoken fails with this tokenizer ({type(error).__name__}: {error})")
    if unequal:
        return Finding(False, f"tokenizers: gigatoken differs on the edge set, first at {texts[unequal[0]]!r}")
    known = sum(end - first for first, end in suspects)
    more = f"; documents with one of {known:,} code points go to tokenizers" if known else ""
    return Finding(True, f"gigatoken: equal to tokenizers on {len(texts):,} edge texts{more}", suspects)
