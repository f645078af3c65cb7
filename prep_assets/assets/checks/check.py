"""Which checks each asset has. How they get at their data is in the modules beside this one, which are imported when one runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from tokenize import TokenError

from prep_assets.assets.later import later
from prep_assets.assets.workspace import Workspace
from prep_assets.config.models import FAMILIES
from prep_assets.errors import PrepAssetsError
from prep_assets.proofs.verdict import Verdict, Worst
from prep_assets.stores.published import Published

Run = Callable[[Workspace, Published], Verdict]


@dataclass(frozen=True, slots=True)
class Check:
    """A check of one asset.

    Attributes:
        name: what it is called in Dagster and on the command line.
        description: what holds when it passes.
        run: looks at a published store.
    """

    name: str
    description: str
    run: Run


def run_check(check: Check, workspace: Workspace, published: Published) -> Verdict:
    """Run a check; a store that cannot even be read is a failure of the check, with the reason as its summary."""
    try:
        return check.run(workspace, published)
    except PrepAssetsError as error:
        return Verdict(False, str(error), {}, Worst(str(published.directory), str(error)))
    except (OSError, ValueError, KeyError, IndexError, EOFError, ArithmeticError, SyntaxError, TokenError) as error:  # numpy parses headers
        detail = f"the store cannot be read ({type(error).__name__}: {error})"
        return Verdict(False, detail, {}, Worst(str(published.directory), detail))


INTEGRITY = Check(
    "file_hashes",
    "Every file of the store has the size and sha256 that its manifest says, and there is no other.",
    later("checks.every_store.integrity"),
)
ACCOUNTING = Check(
    "accounting",
    "Records read = records kept + records refused, and each refused one is in quarantine with its reason.",
    later("checks.accounting.accounting"),
)
RAW_ACCOUNTING = Check(
    "accounting", "Rows read = readable rows + rows in quarantine, over all source files.", later("checks.accounting.raw_accounting")
)

_MASK = "Trained tokens decode to exactly the assistant's texts and their stop token, on every row; derived without the code that made the mask."
_IDENTITY = "Every row's tokens decode to a fresh render of its source; its control tokens are those that the template wrote, none typed by anybody."
_RAW = (INTEGRITY, RAW_ACCOUNTING)
_LINES = "Every line that these tokens are made from is there once, or refused once for a reason that holds."
SELECTION = Check(
    "selection",
    "Every row of the sources, read again by other code, is stored once on its side of the split, or refused once for a reason that holds.",
    later("checks.selection.selection"),
)

CHECKS: Mapping[str, tuple[Check, ...]] = {
    **{f"{family}_raw": _RAW for family in FAMILIES},
    "pretrain_tokens": (
        INTEGRITY,
        ACCOUNTING,
        SELECTION,
        Check(
            "row_integrity",
            "Ids are inside the vocabulary; each document begins and ends with the tokens that `bos` says, and has no other of them.",
            later("checks.pretrain.pretrain_rows"),
        ),
        Check(
            "mask_alignment",
            "Documents are trained in full, but for images and for regions to which the source gives another weight; those have it.",
            later("checks.pretrain.pretrain_masks"),
        ),
        Check(
            "tokenization_identity",
            "Every document's tokens decode to its text; a sample equals the reference tokenizer's ids.",
            later("checks.pretrain.pretrain_texts"),
        ),
    ),
    "sft_template": (
        INTEGRITY,
        Check(
            "policy_supported",
            "The chat template supports the mask policy that the configuration asks for.",
            later("checks.sft.policy"),
        ),
    ),
    "sft_tokens": (
        INTEGRITY,
        ACCOUNTING,
        SELECTION,
        Check(
            "row_integrity",
            "Ids are inside the vocabulary, mask and tokens are equally long, every record trains something.",
            later("checks.token_rows.token_rows"),
        ),
        Check("mask_alignment", _MASK, later("checks.sft.sft_mask")),
        Check("tokenization_identity", _IDENTITY, later("checks.sft.sft_identity")),
    ),
    "sft_packed": (
        INTEGRITY,
        Check("accounting", "Every token of every domain is in a row or counted as left out.", later("checks.packed.packed_accounting")),
        Check(
            "row_integrity",
            "Rows have one length, borders add up, padding is untrained, every row trains something.",
            later("checks.packed.packed_rows"),
        ),
        Check(
            "mask_alignment",
            "Every packed token and mask value is that of its record, whose mask is proven in sft_tokens.",
            later("checks.packed.packed_mask"),
        ),
        Check(
            "mixture",
            "Every record that the packing options ask for is in the rows, whole and as often as they ask, or left out for a reason that holds.",
            later("checks.packed.packed_mixture"),
        ),
    ),
    "preferences": (
        INTEGRITY,
        ACCOUNTING,
        SELECTION,
        Check(
            "pair_sanity",
            "One prompt, two different answers, nothing empty, no prompt in both train and test.",
            later("checks.preferences.pairs"),
        ),
        Check(
            "source_match",
            "Every pair is what its row says, prompt and answers, each on its side.",
            later("checks.source_match.source_match"),
        ),
    ),
    "preference_tokens": (
        INTEGRITY,
        ACCOUNTING,
        Check("selection", _LINES, later("checks.selection.line_selection")),
        Check(
            "row_integrity",
            "Ids are inside the vocabulary, and both sides of every pair train something.",
            later("checks.token_rows.token_rows"),
        ),
        Check(
            "mask_alignment",
            "Trained tokens of both sides decode to exactly the answers and their stop token.",
            later("checks.preferences.preference_mask"),
        ),
        Check("tokenization_identity", _IDENTITY, later("checks.preferences.preference_identity")),
    ),
    "rl_prompts": (
        INTEGRITY,
        ACCOUNTING,
        SELECTION,
        Check("gold_answers", "Every gold equals a second reading of its source by other code.", later("checks.prompts.prompt_golds")),
        Check("source_match", "Every prompt is what its row says, with the gold of that row.", later("checks.source_match.source_match")),
    ),
    "arithmetic_prompts": (
        INTEGRITY,
        Check("gold_answers", "Every gold equals its question worked out exactly.", later("checks.prompts.arithmetic_golds")),
        Check("source_match", "The questions are those that the options give, in their order.", later("checks.source_match.source_match")),
    ),
    "rl_groups": (
        INTEGRITY,
        ACCOUNTING,
        SELECTION,
        Check(
            "row_integrity",
            "Ids are inside the vocabulary, and every response trains something.",
            later("checks.groups.group_rows_integrity"),
        ),
        Check(
            "mask_alignment",
            "Trained tokens of every prompt with each of its responses decode to exactly the answer and its stop token.",
            later("checks.groups.group_mask"),
        ),
        Check("tokenization_identity", _IDENTITY, later("checks.groups.group_identity")),
        Check(
            "rewards",
            "Every reward is finite, each response of a group has one, and they are those of the source.",
            later("checks.groups.group_rewards"),
        ),
        Check(
            "sampled_ids",
            "Ids and log-probabilities that the source has as sampled are stored as they are, and every sampled token is trained.",
            later("checks.groups.group_sampled"),
        ),
    ),
    "rl_tokens": (
        INTEGRITY,
        ACCOUNTING,
        Check("selection", _LINES, later("checks.selection.line_selection")),
        Check("row_integrity", "Ids are inside the vocabulary.", later("checks.token_rows.token_rows")),
        Check("tokenization_identity", _IDENTITY, later("checks.prompts.prompt_identity")),
    ),
}

EXPORTED = (
    INTEGRITY,
    Check(
        "readable",
        "First, last and 100 random rows, read back by code that did not write them, equal the store's.",
        later("exports.readable"),
    ),
)
"""What every export has."""


def checks_of(asset: str) -> tuple[Check, ...]:
    """The checks of an asset, one of the graph's or an export."""
    return CHECKS.get(asset, EXPORTED)
