"""Rows that are refused, and options that stop: one table of each format's rows with what makes them unfit, and the reason."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from prep_assets.errors import ConfigError
from prep_assets.schemas.registry import convert_with, schemas
from prep_assets_tests.cells import cells
from prep_assets_tests.corpus import rows as sound
from prep_assets_tests.corpus.rejected_rows import ALPACA_ROW, REFUSED
from prep_assets_tests.corpus.rows import ANSWER, GPT, chat, group, said, shares
from prep_assets_tests.schemas.test_pages import OWN

ELSEWHERE = {
    "graph/test_agent_steps.py": {"agent_steps"},
    "extensions/atif/test_atif.py": {"atif", "atif_group"},
    "extensions/sessions/test_sessions.py": {"agent_session"},
    "extensions/distillation/test_distilled.py": {"distilled"},
    "extensions/contrastive/test_contrastive.py": {"contrastive", "ctx_embed_gen_hook", "ques_embed_gen_hook"},
    "graph/test_rankings.py": {"compared", "group_best", "group_kto", "group_list", "group_pair"},
    "graph/test_runs.py": {"verifiers_trace"},
    "graph/test_steps.py": {"math_shepherd", "prm800k", "stepwise"},
    "graph/test_tokenized_rows.py": {"tokenized"},
    "schemas/test_gold.py": {"arithmetic"},
    "schemas/test_logs.py": {"anthropic", "openai_responses"},
}
"""Schemas whose rows are in another file. Variants for AstrAI and ModelLink refuse what the schemas that they call refuse."""


def test_every_schema_has_rows_that_it_reads_and_rows_that_it_refuses() -> None:
    elsewhere = set[str]().union(*ELSEWHERE.values())
    assert {*schemas()} - elsewhere <= {*sound.CASES} and {*OWN} - elsewhere <= {*REFUSED}
    assert all(name in (Path(__file__).parents[1] / file).read_text("utf-8") for file, names in ELSEWHERE.items() for name in names)


@cells(
    ("name", "row", "reason", "options"),
    [
        pytest.param(name, {**row, **unfit[0]}, unfit[1], unfit[2] if len(unfit) > 2 else {}, id=f"{name}-{number}")
        for name, (row, cases) in REFUSED.items()
        for number, unfit in enumerate(cases)
    ],
)
def test_rows_are_refused_for_this_reason(refusal, name: str, row: Mapping[str, Any], reason: str, options: dict[str, Any]) -> None:
    assert refusal(name, row, **options).reason == reason


@pytest.mark.parametrize(
    ("name", "row", "detail"),
    [
        ("text", {"body": "x", "id": 1}, "needs 'text'; it has 'body', 'id'"),
        ("text", {}, "needs 'text'; it has no fields, ignored ones aside"),
        (
            "messages",
            chat(said("human", "q"), ANSWER),
            "messages[0] has role 'human'; known tags: system, developer, user, assistant, tool, function, tool_call, function_call, tool_response, "
            "observation. Say whose it is with the option roles",
        ),
        (
            "sharegpt",
            shares({"from": "critic", "value": "q"}, GPT),
            "conversations[0] has from 'critic'; known tags: user, assistant, tool, tool_call, function_call, tool_response, observation, human, gpt, "
            "system. Name it in one of the options user_tag, assistant_tag, observation_tag, function_tag and system_tag",
        ),
        (
            "messages",
            chat(said("user", [{"type": "film", "value": "x.mp4"}]), ANSWER),
            "messages[0].content[0] has type 'film'; known: text, input_text, output_text, reasoning, thinking, tool_call, tool_use, image, image_url, audio, "
            "audio_url, video, video_url",
        ),
        (
            "GeneralInstructionHandler",
            {**ALPACA_ROW, "system": "Be brief."},
            "the record has 'system', which this schema does not read: 'Be brief.'. Where it means nothing here, list it under `ignore`",
        ),
        ("rl_prompt", {"prompt": "q", "gold": None}, "'gold' is null"),
        ("messages", chat(said("user", None), ANSWER), "'messages[0].content' of the user is null"),
        ("messages", chat(said("user", "q"), said("assistant", None)), "'messages[1].content' is null, and there is no tool call"),
    ],
)
def test_a_refusal_says_where_and_what(refusal, name: str, row: Mapping[str, Any], detail: str) -> None:
    assert refusal(name, row).detail == detail


SECTION = {"field": "p", "action": "train"}


@cells(
    ("name", "options", "message"),
    [
        *(
            ("SharegptStyleInstructionHandler", {"map_keys": map_keys}, "map_keys")
            for map_keys in ({"message": "m"}, {"tags": {"usr_tag": "u"}}, {"tags": "u"}, {"chosen": "c"})
        ),
        ("AlpacaStyleInstructionHandler", {"map_keys": {"promt": "q"}}, r"no key 'promt'; did you mean 'prompt'\?"),
        ("AlpacaStylePairwiseHandler", {"map_keys": {"response": "q"}}, "no key 'response'"),
        ("tokenized", {"mask_keys": ["attention_mask", "loss_mask"]}, "stands alone"),
        ("rl_prompt", {"gold_key": None}, "gold_key is null, and the verifier 'number' compares with a gold"),
        *(
            ("sections", {"sections": sections}, message)
            for sections, message in (
                ([{"field": "p", "action": "trane"}], r"sections\.0\.action: .*'trane'.; did you mean 'train'\?"),
                ([{"feild": "p", "action": "train"}], r"sections\.0\.feild: unknown key; did you mean 'field'\?"),
                ([{"action": "train"}], r"sections\.0\.field: missing"),
                ([{"field": "p", "action": "$role"}], "without a template"),
                ([{"field": "p", "action": "mask"}], "train nothing"),
                ([{"field": "p", "action": "value"}], "train nothing"),
                ([sound.MASK_P, {**sound.TRAIN_R, "add_special_tokens": True}], "add_special_tokens can only be false"),
                ([sound.MASK_P, {"field": "m", "action": "$role", "template": True}], "mixes sections"),
            )
        ),
        ("sections", {"sections": [SECTION], "sources": sound.CHATS_IN}, "both sections and sources"),
        *(
            ("sections", {"sources": sources}, message)
            for sources, message in (
                ({"chosen": sound.CHATS_IN["chosen"]}, "sources are chosen; known: chosen"),
                ({**sound.CHATS_IN, "chosen": {"section": []}}, r"(?s)sources\.chosen:.*section: unknown key; did you mean 'sections'\?"),
                ({**sound.CHATS_IN, "chosen": {"sections": []}}, "is empty"),
                ({**sound.CHATS_IN, "chosen": {**sound.CHATS_IN["chosen"], "list_field": True}}, "list_field must be false"),
                ({**group(), "responses": {"sections": [SECTION]}}, "list_field must be true"),
                ({**group(), "rewards": {"sections": [{**SECTION, "add_special_tokens": True}]}}, "action 'value' is for rewards"),
                ({**group(), "prompts": {"sections": [{"field": "p", "action": "value"}]}}, "action 'value' is for rewards"),
            )
        ),
    ],
)
def test_options_that_mean_nothing_stop(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        convert_with(name, options)
