"""Scored groups, of texts and of ids that a model sampled."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer

from prep_assets.config.models import TRAINED
from prep_assets.engine import state
from prep_assets.errors import ConfigError, PrepAssetsError
from prep_assets.extensions.explain.previews import preview
from prep_assets.extensions.exports.assets import asset_name, family_exports
from prep_assets.extensions.rl.config import Rl, group_domains, prompt_domains
from prep_assets.extensions.rl.mutations import ROLLOUT_MUTATIONS, STEP_MUTATIONS
from prep_assets.extensions.selftest.stores import selftest
from prep_assets.graph.graph import ASSETS, EVERY, asset_named, assets_of
from prep_assets.pipeline.workspace import Workspace
from prep_assets.stores.table import open_stream
from prep_assets.stores.version_folders import Published
from prep_assets.text.visible import Preview
from prep_assets.training import DatasetFactory
from prep_assets_tests.graph.workspaces import (
    TOKENIZER,
    build,
    build_all,
    domain,
    jsonl,
    make,
    out_of_date,
    part_of,
    refusals,
    verdicts,
    workspace_in,
)
from prep_assets_tests.stored import StoredGroups

# `rl_groups`: which domains it reads, what becomes of a group, and what its checks and its selftest notice.


GOOD: list[dict[str, Any]] = [
    {
        "prompt": f"What is {i} + 2?",
        "responses": [f"{i + 2}", "I think\nit is ünknown.", f"{i + 2}"][: 1 + i % 3],
        "rewards": [1, -0.3, 1e-3],
    }
    for i in range(40)
]
for row in GOOD:
    row["rewards"] = row["rewards"][: len(row["responses"])]
CHAT = {
    "prompt": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Capital of Peru?"}],
    "responses": ["Lima", [{"role": "assistant", "content": "Quito"}]],
    "rewards": [0.5, 0],
}
BAD: dict[str, dict[str, Any]] = {
    "schema/length_mismatch": {"prompt": "a", "responses": ["b", "c"], "rewards": [1]},
    "schema/empty_answer": {"prompt": "a", "responses": ["b", " "], "rewards": [1, 0]},
    "schema/missing_field": {"prompt": "a", "responses": ["b"]},
    "group/reward_out_of_range": {"prompt": "a", "responses": ["b"], "rewards": [1e39]},
    "tokenize/too_long": {"prompt": "a", "responses": ["b", "long " * 300], "rewards": [1, 0]},
    "deduplicate/duplicate": GOOD[3],
}
ROWS = [*GOOD, CHAT, *BAD.values()]


def workspace_of(folder: Path, domains: dict[str, Any], **more: Any) -> Workspace:
    options = {"preprocessing": {"max_seq_len": 200}, "arithmetic": {"n": 20}, "test_fraction": 0.2, "output": {"storage_format": "bin"}}
    return workspace_in(folder, {"rl": {"tokenizer": TOKENIZER, **options, "domains": domains, **more}})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Prompts and groups side by side, built."""
    folder = tmp_path_factory.mktemp("groups")
    rows = jsonl(folder / "groups.jsonl", ROWS)
    held = jsonl(folder / "held.jsonl", [{"prompt": "Held out?", "responses": ["Yes", "No"], "rewards": [1, 0]}])
    domains = {
        "scored": domain(rows, "group", test_files=[str(held)]),
        "gsm8k": domain("gsm8k.jsonl", "gsm8k"),
        "again": domain(rows, "group", max_items=5),
    }
    made = workspace_of(folder, domains, output={"storage_format": "bin", "max_tokens_per_shard": 150})
    build_all(made, ["rl"])
    return made


def published(workspace: Workspace, asset: str = "rl_groups") -> Published:
    return workspace.built(asset)


def chatml(row: dict[str, Any], tokenizer: Tokenizer) -> dict[str, Any]:
    """A group as the demo tokenizer's template has it, worked out from strings."""

    def turns(value: Any, role: str) -> str:
        messages = [{"role": role, "content": value}] if isinstance(value, str) else value
        return "".join(f"<|im_start|>{each['role']}\n{each['content']}<|im_end|>\n" for each in messages)

    head = turns(row["prompt"], "user") + "<|im_start|>assistant\n"
    prompt = tokenizer.encode(head, add_special_tokens=False).ids
    end = tokenizer.token_to_id("<|im_end|>")
    found: dict[str, Any] = {"prompts": prompt, "responses": [], "masks": [], "rewards": row["rewards"]}
    for response in row["responses"]:
        whole = tokenizer.encode(turns(row["prompt"], "user") + turns(response, "assistant"), add_special_tokens=False).ids
        ids = whole[len(prompt) :]
        found["responses"].append(ids)
        found["masks"].append([i <= ids.index(end) for i in range(len(ids))])
    return found


def test_groups_are_tokenized_like_their_template(made: Workspace) -> None:
    tokenizer = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")
    folder = made.stores / "rl_groups"
    found: list[dict[str, Any]] = []
    for part in (folder, folder / "current" / "test"):
        for item in DatasetFactory.load("grpo", part):
            lists = {key: [part.tolist() for part in item[key]] for key in ("responses", "masks")}
            found.append({"prompts": item["prompts"].tolist(), **lists, "rewards": item["rewards"].tolist()})
    rows = [*GOOD[:5], *GOOD, CHAT, {"prompt": "Held out?", "responses": ["Yes", "No"], "rewards": [1, 0]}]
    expected = [chatml(row, tokenizer) for row in rows]
    for row in expected:
        row["rewards"] = pytest.approx(row["rewards"], rel=1e-6)
    assert len(found) == len(expected)
    assert all(row in found for row in expected)
    for row in GOOD[5:]:  # those of one domain only
        assert sum(chatml(row, tokenizer)["prompts"] == each["prompts"] for each in found) == 1


def test_a_group_is_whole_or_refused(made: Workspace) -> None:
    store, counts = part_of(made, "rl_groups", "scored"), published(made).manifest.counts
    assert store.manifest.counts["refused"] == dict.fromkeys(sorted(BAD), 1)
    assert store.manifest.counts["read"] == len(ROWS) + 1 == store.manifest.counts["kept"] + len(BAD)
    assert counts["kept"] == counts["train"] + counts["test"] == counts["read"] == store.manifest.counts["kept"] + 5
    assert counts["responses"] == sum(len(row["responses"]) for row in [*GOOD, *GOOD[:5], CHAT]) + 2
    listed = {f"{each.stage}/{each.reason}": each for each in refusals(store)}
    assert listed["tokenize/too_long"].detail.startswith("response 1: ")
    assert listed["tokenize/too_long"].id == f"groups.jsonl:{ROWS.index(BAD['tokenize/too_long']) + 1}"


def test_what_is_held_out_is_by_its_prompt(made: Workspace) -> None:
    train, test = StoredGroups(published(made).directory), StoredGroups(published(made).directory / "test")
    prompts = [{tuple(store.prompts.record(i, "tokens").tolist()) for i in range(len(store))} for store in (train, test)]
    assert len(test) > 1 and not prompts[0] & prompts[1]
    assert train.table.origins.domains == test.table.origins.domains == ("again", "scored")
    assert sorted(set(train.table.origins.domain.tolist())) == [0, 1]


def test_prompts_and_groups_do_not_read_each_others_domains(made: Workspace) -> None:
    family = made.family(Rl)
    assert (group_domains(family), prompt_domains(family)) == (("again", "scored"), ("gsm8k",))
    prompts = part_of(made, "rl_prompts", "gsm8k")
    assert asset_named("rl_groups_by_domain", made).partitions(made) == ("scored", "again")
    assert (prompts.manifest.counts["read"], prompts.manifest.counts["refused"]) == (200, {})
    assert open_stream(prompts.directory, "rl_prompts_train").origins.domains == ("gsm8k",)


def test_a_group_as_it_is_shown(made: Workspace) -> None:
    store = StoredGroups(published(made).directory)
    row = next(i for i in range(len(store)) if len(store.responses_of(i)) == 3)
    shown = preview(made, published(made), row)
    assert isinstance(shown, Preview)
    source = GOOD[int(store.prompts.origins.row[row])]
    where = f"{store.table.origins.of(row)[0]}/groups.jsonl:{store.prompts.origins.row[row] + 1}"
    prompt = len(store.prompts.record(row, "tokens"))
    assert [name for _, name in shown.origins] == [where, "response 0, reward 1", "response 1, reward -0.3", "response 2, reward 0.001"]
    assert shown.origins[1][0] == prompt and not any(shown.weights[:prompt])
    assert source["prompt"] in "".join(shown.tokens[:prompt])
    last = shown.origins[3][0]
    assert "".join(shown.tokens[last:]) == f"{source['responses'][2]}<|im_end|>\n"
    assert shown.positions[last] == prompt and len(shown.ids) == len(shown.tokens) == len(shown.weights)
    with pytest.raises(ConfigError, match=r"there are \d+, numbered from 0"):
        preview(made, published(made), len(store))
    with pytest.raises(ConfigError, match=r"has no stream 'dev'\. There are: train, test"):
        preview(made, published(made), 0, stream="dev")


# -- which domains have groups ----------------------------------------------------------------------------------------------------------


def test_the_graph_has_groups_where_a_domain_gives_them(made: Workspace, tmp_path: Path) -> None:
    rl = [name for name, asset in ASSETS.items() if asset.family == "rl"]
    groups = ["rl_groups_by_domain", "rl_groups"]
    assert list(assets_of(made)) == [*rl, *groups] and set(EVERY) == {
        *(*ASSETS, *groups),
        *(f"{family}_{judged}" for family in TRAINED for judged in ("quality", "leaks")),
        *("pretrain_blend", "sft_blend"),
    }
    assert [asset_named(name, made).upstream(made) for name in groups] == [("rl_raw",), ("rl_groups_by_domain",)]
    without = workspace_of(tmp_path, {"gsm8k": domain("gsm8k.jsonl", "gsm8k")})
    assert list(assets_of(without)) == rl
    with pytest.raises(ConfigError, match=r"no asset 'rl_groups': no domain of rl\.yaml has a schema that gives a Group"):
        asset_named("rl_groups", without)


def test_an_export_of_groups_needs_groups(made: Workspace, tmp_path: Path) -> None:
    exports = {"trl": {"from": "rl_groups", "to": "hf_arrow"}, "held": {"from": "rl_groups", "to": "astrai", "stream": "test"}}
    without = workspace_of(tmp_path / "a", {"gsm8k": domain("gsm8k.jsonl", "gsm8k")}, exports=exports)
    with pytest.raises(ConfigError, match=r"exports\.trl\.from: rl_groups is not an asset here"):
        family_exports(without, "rl")
    groups = dict(made.family(Rl).model_dump(by_alias=True), exports=exports)
    other = workspace_in(tmp_path / "b", {"rl": groups})
    build(other, "rl_groups")
    counts = published(other).manifest.counts
    kept = {}
    for each in family_exports(other, "rl"):
        made_export = make(other, assets_of(other)[asset_name(each)])
        kept[asset_name(each)] = made_export.manifest.counts["rows"]
    assert kept == {"rl_export_trl": counts["train"], "rl_export_held": counts["test"]}
    assert out_of_date(other, assets_of(other)["rl_export_trl"]) == []


def test_only_groups(tmp_path: Path) -> None:
    made = workspace_of(tmp_path, {"scored": domain(jsonl(tmp_path / "g.jsonl", GOOD[:4]), "group")}, test_fraction=0)
    stores = build_all(made, ["rl"])
    assert stores["rl_prompts", ""].manifest.counts["read"] == 0
    assert stores["rl_tokens", ""].manifest.counts["kept"] == 20
    assert not (stores["rl_groups", ""].directory / "test").exists()
    for name in ("rl_prompts", "rl_tokens", "rl_groups"):
        assert state(made, EVERY[name], "") == "current"


def test_one_source_of_prompts_and_groups(tmp_path: Path) -> None:
    rows = jsonl(tmp_path / "g.jsonl", [{**GOOD[0], "kind": "g"}, {"prompt": "2 + 2?", "gold": "4", "kind": "p"}, {**GOOD[1], "kind": "g"}])
    routed = {"g": domain(rows, "group", domain_key="kind"), "p": domain(rows, "rl_prompt", domain_key="kind")}
    stores = build_all(workspace_of(tmp_path, routed, test_fraction=0), ["rl"])
    assert [stores[name, ""].manifest.counts["kept"] for name in ("rl_prompts", "rl_groups")] == [1, 2]


def test_plain_groups_have_no_template(tmp_path: Path) -> None:
    sources = {
        "prompts": {"sections": [{"field": "q", "action": "mask"}]},
        "responses": {"sections": [{"field": "a", "action": "train"}], "list_field": True},
        "rewards": {"sections": [{"field": "r", "action": "value"}]},
    }
    rows = [{"q": "Q: why?\nA:", "a": [" because", " no"], "r": [1, 0]}, {"q": "Q: why? ", "a": ["because"], "r": [1]}]
    options = {"options": {"sources": sources}}
    made = workspace_of(tmp_path, {"plain": domain(jsonl(tmp_path / "g.jsonl", rows), "sections", **options)}, test_fraction=0)
    found = build_all(made, ["rl"])["rl_groups_by_domain", "plain"]
    # the space before the answer would be one token with it
    assert [(each.id, each.reason) for each in refusals(found)] == [("g.jsonl:2", "prompt_differs")]
    item = DatasetFactory.load("grpo", made.stores / "rl_groups")[0]
    vocabulary = made.vocabulary(made.family(Rl))
    assert [vocabulary.decode(part.numpy()) for part in (item["prompts"], *item["responses"])] == [
        "Q: why?\nA:",
        " because<|endoftext|>",
        " no<|endoftext|>",
    ]


def test_a_response_goes_on_from_the_very_prompt(tmp_path: Path) -> None:
    """The generation prompt of this template is as long as the header of an answer, and another one."""
    turns = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    made = workspace_of(tmp_path, {"scored": domain(jsonl(tmp_path / "g.jsonl", GOOD[:4]), "group")}, template="odd.jinja", test_fraction=0)
    (made.configs / "odd.jinja").write_text(turns + "{% if add_generation_prompt %}<|im_start|>user\n{% endif %}")
    build(made, "rl_raw", "scored")
    with pytest.raises(PrepAssetsError, match=r"all 4 records were refused \(tokenize/prompt_differs: 4\)"):
        build(made, "rl_groups")


def test_a_schema_that_gives_something_else_stops_the_build(tmp_path: Path) -> None:
    rows = jsonl(tmp_path / "g.jsonl", [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}])
    made = workspace_of(tmp_path, {"chat": domain(rows, "sections")})
    build(made, "rl_raw", "chat")
    with pytest.raises(ConfigError, match="domain chat: schema 'sections' with these options gives a Sample; rl_groups needs a Group"):
        build(made, "rl_groups")


OWN = """
from prep_assets.samples import ASSISTANT, IMAGE, TEXT, USER, Group, Prompt, Region, Turn, turn

def scored(row) -> Group | None:
    weight = row.get("weight")
    answer = Turn(ASSISTANT, (Region(TEXT, "b", weight),))
    prompt = Turn(USER, (Region(IMAGE, "a.png"),)) if row.get("image") else turn(USER, "a")
    return Group((prompt,), ((answer,),), tuple(row["rewards"]))

def asked(row) -> Prompt:
    return Prompt((turn(USER, "a"),), "1")
"""


def test_schemas_of_ones_own_say_by_their_annotation_what_they_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_groups.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    rows = [{"rewards": [1]}, {"rewards": [1], "weight": 0.5}, {"rewards": [1, 2]}, {"rewards": []}, {"rewards": [1], "image": True}]
    path = jsonl(tmp_path / "g.jsonl", rows)
    domains = {"s": domain(path, "own_groups:scored"), "a": domain(path, "own_groups:asked"), "gone": domain(path, "own_gone:function")}
    made = workspace_of(tmp_path, domains, test_fraction=0)
    try:
        assert (group_domains(made.family(Rl)), prompt_domains(made.family(Rl))) == (("s",), ("a", "gone"))
        found = build(made, "rl_groups_by_domain", "s")
        assert found.manifest.counts["kept"] == 1
        assert found.manifest.counts["refused"] == {"group/fractional_weight": 1, "group/length_mismatch": 2, "group/unsupported_media": 1}
    finally:
        sys.modules.pop("own_groups", None)


# Groups with the token ids that a model sampled: stored unchanged, with their log-probabilities, and drift counted.


KEYS = {"token_ids_key": "token_ids", "logprobs_key": "logprobs"}
BACKEND = Tokenizer.from_file(f"{TOKENIZER}/tokenizer.json")
STOP = BACKEND.token_to_id("<|im_end|>")


def canonical(text: str) -> list[int]:
    return [*BACKEND.encode(text, add_special_tokens=False).ids, STOP]


def spelled(text: str) -> list[int]:
    """The same text in single bytes: what no tokenizer writes and a model may sample."""
    return [*(BACKEND.token_to_id(char) for char in text), STOP]


def rollout(number: int, **more: Any) -> dict[str, Any]:
    texts = [f"It is {number}.", f"maybe{number}"]
    ids = [canonical(texts[0]), spelled(texts[1])]
    logprobs = [[-0.125 * at for at in range(len(each))] for each in ids]
    return {"prompt": f"What is {number}?", "responses": texts, "token_ids": ids, "logprobs": logprobs, "rewards": [1, -0.5], **more}


def built(folder: Path, rows: list[dict[str, Any]], keys: dict[str, str] = KEYS, **options: Any) -> tuple[Workspace, Published]:
    source = jsonl(folder / "rows.jsonl", rows)
    domains = {"rollouts": domain(source, "group", options=keys)}
    family = {"tokenizer": TOKENIZER, "domains": domains, "output": {"storage_format": "bin"}, **options}
    workspace = workspace_in(folder, {"rl": family})
    return workspace, build(workspace, "rl_groups_by_domain", "rollouts")


def test_ids_are_stored_as_they_were_sampled(tmp_path: Path) -> None:
    """vLLM's report of October 2025, verl issue 3720: encoding the decoded rollout gives other ids than were sampled."""
    rows = [rollout(number) for number in range(5)]
    workspace, published = built(tmp_path, rows)
    store = StoredGroups(published.directory)
    for number, row in enumerate(rows):
        for at, record in enumerate(store.responses_of(number)):
            assert store.responses.record(record, "tokens").tolist() == row["token_ids"][at]
            assert store.responses.record(record, "logprobs").tolist() == row["logprobs"][at]
            assert store.responses.record(record, "loss_mask").all()
        head = f"<|im_start|>user\n{row['prompt']}<|im_end|>\n<|im_start|>assistant\n"
        assert store.prompts.record(number, "tokens").tolist() == BACKEND.encode(head, add_special_tokens=False).ids
    counts = published.manifest.counts
    assert (counts["sampled"], counts["retokenized_otherwise"]) == (10, 5)
    assert "ids of 10 responses are stored as they were sampled" in verdicts(workspace, published)["sampled_ids"].summary


def test_a_prompt_may_have_its_own_ids(tmp_path: Path) -> None:
    rows = [rollout(1, prompt_ids=spelled("What?"))]
    _, published = built(tmp_path, rows, {**KEYS, "prompt_ids_key": "prompt_ids"})
    assert StoredGroups(published.directory).prompts.record(0, "tokens").tolist() == rows[0]["prompt_ids"]


SAMPLED_GROUPS_BAD = {
    "schema/length_mismatch": {"logprobs": [[-1.0], [-1.0]]},
    "schema/positive_logprob": {"logprobs": [[0.5] * len(each) for each in rollout(1)["token_ids"]]},
    "schema/wrong_type": {"token_ids": [["a"], [1]]},
    "schema/missing_field": {"token_ids": None},
    "tokenize/id_outside_vocabulary": {"token_ids": [[10**6] * len(each) for each in rollout(1)["token_ids"]]},
    "tokenize/ids_differ_from_text": {"responses": ["It is 1.", "something else"]},
    "tokenize/too_long": {"prompt": "long " * 300},
    "group/sampled_ids_without_mask": {
        "responses": [
            "It is 1.",
            [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}],
        ]
    },
}


def test_what_is_refused(tmp_path: Path) -> None:
    rows = [*(rollout(1, **bad) for bad in SAMPLED_GROUPS_BAD.values()), rollout(2)]
    _, published = built(tmp_path, rows, preprocessing={"max_seq_len": 200})
    assert [f"{each.stage}/{each.reason}" for each in refusals(published)] == [*SAMPLED_GROUPS_BAD]
    assert published.manifest.counts["kept"] == 1


# Rollouts of several turns: what the model sampled is trained, what its environment wrote between is not.

SEVERAL = {**KEYS, "sampled_mask_key": "mask"}


def turns_sampled(*texts: str, tail: str = "") -> tuple[list[dict[str, str]], list[int], list[int]]:
    """Messages, ids and mask of a rollout whose answers and tool results alternate."""
    messages, ids, mask = list[dict[str, str]](), list[int](), list[int]()
    for at, text in enumerate(texts):
        messages.append({"role": "user" if at % 2 else "assistant", "content": text})
        part = canonical(text) if at % 2 == 0 else encoded(f"\n<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n")
        ids += part
        mask += [1 - at % 2] * len(part)
    return messages, [*ids, *encoded(tail)], [*mask, *[0] * len(encoded(tail))]


def encoded(text: str) -> list[int]:
    return BACKEND.encode(text, add_special_tokens=False).ids


def run_of(number: int, *, tail: str = "", **more: Any) -> dict[str, Any]:
    several, ids, mask = turns_sampled(f"I ask {number}.", "the tool says 4", f"It is {number}.", tail=tail)
    single = canonical("No idea at all.")
    logprobs = [[-0.5 * value for value in mask], [-0.25] * len(single)]
    row = {"prompt": f"What is {number}?", "responses": [several, "No idea at all."], "token_ids": [ids, single], "logprobs": logprobs}
    return {**row, "mask": [mask, [1] * len(single)], "rewards": [1, 0], **more}


@pytest.mark.parametrize("tail", ["", "\n"], ids=["ends with its stop", "ends with the template's line break"])
def test_of_several_turns_only_what_was_sampled_is_trained(tmp_path: Path, tail: str) -> None:
    rows = [run_of(number, tail=tail) for number in range(4)]
    workspace, published = built(tmp_path, rows, SEVERAL)
    store = StoredGroups(published.directory)
    for number, row in enumerate(rows):
        for at, record in enumerate(store.responses_of(number)):
            assert store.responses.record(record, "tokens").tolist() == row["token_ids"][at]
            assert store.responses.record(record, "loss_mask").tolist() == row["mask"][at]
            assert store.responses.record(record, "logprobs").tolist() == row["logprobs"][at]
    assert refusals(published) == []
    trials = [trial for trial in selftest(workspace, published) if trial.check == "sampled_ids" and trial.mutation]
    assert [trial for trial in trials if trial.tried != trial.caught] == []
    assert [trial.mutation for trial in trials if not trial.caught] == ["another prompt than was sampled from"]


def shifted(row: dict[str, Any], by: int) -> dict[str, Any]:
    mask = row["mask"][0]
    return {"mask": [[*mask[by:], *mask[:by]], row["mask"][1]]}


MASKS_OF_OTHER_TURNS: list[tuple[Callable[[dict[str, Any]], dict[str, Any]], str]] = [
    (lambda row: shifted(row, -1), "tokenize/stop_not_sampled"),
    (lambda row: shifted(row, -3), "tokenize/ids_differ_from_text"),
    (lambda row: shifted(row, 1), "tokenize/stop_not_sampled"),
    (lambda row: {"mask": [[1] * len(row["mask"][0]), row["mask"][1]]}, "tokenize/mask_differs_from_turns"),
    (lambda row: {"mask": [row["mask"][0][:-1], row["mask"][1]]}, "schema/length_mismatch"),
    (lambda row: {"mask": [[2 * value for value in row["mask"][0]], row["mask"][1]]}, "schema/bad_mask"),
    (lambda row: {"responses": [row["responses"][0][:1], row["responses"][1]]}, "tokenize/mask_differs_from_turns"),
    (lambda row: {"logprobs": [[0.0] * len(each) for each in row["logprobs"]]}, "schema/logprobs_all_zero"),
]


def test_a_mask_that_is_not_of_these_turns_is_refused(tmp_path: Path) -> None:
    _, published = built(tmp_path, [*(run_of(1) | change(run_of(1)) for change, _ in MASKS_OF_OTHER_TURNS), run_of(2)], SEVERAL)
    assert [f"{each.stage}/{each.reason}" for each in refusals(published)] == [reason for _, reason in MASKS_OF_OTHER_TURNS]


JUDGED = {**SEVERAL, "turn_rewards_key": "turns"}


def judged(number: int, **more: Any) -> dict[str, Any]:
    return run_of(number, tail="\n", turns=[[0.25, 1.5], [-1]]) | more


def test_each_reward_of_an_answer_stands_at_its_last_token(tmp_path: Path) -> None:
    """The stop token of each answer is the last token that was sampled of it; the next is the environment's, or there is none."""
    exports = {"arrow": {"from": "rl_groups", "to": "hf_arrow"}}
    workspace, published = built(tmp_path, [judged(number) for number in range(6)], JUDGED, exports=exports)
    store = StoredGroups(published.directory)
    stop = encoded("<|im_end|>")[0]
    for number in range(6):
        for record, rewards in zip(store.responses_of(number), ([0.25, 1.5], [-1.0]), strict=True):
            ids, ends, stored = (store.responses.record(record, key) for key in ("tokens", "step_ends", "step_rewards"))
            assert np.flatnonzero(ends).tolist() == np.flatnonzero(ids == stop)[[0, -1] if len(rewards) > 1 else [0]].tolist()
            assert stored[ends == 1].tolist() == rewards
            assert not stored[ends == 0].any()
    assert refusals(published) == []
    assert "18 rewards of 12 responses stand where their steps end" in verdicts(workspace, published)["step_rewards"].summary
    trials = [trial for trial in selftest(workspace, published) if trial.check == "step_rewards" and trial.mutation]
    assert {trial.mutation for trial in trials if trial.caught} == {mutation.name for mutation in STEP_MUTATIONS}
    assert [trial for trial in trials if trial.tried != trial.caught] == []
    build(workspace, "rl_groups")
    found = make(workspace, next(each for name, each in assets_of(workspace).items() if name.endswith("arrow")))
    (file,) = found.directory.rglob("*.arrow")
    exported = pa.ipc.open_stream(file.read_bytes()).read_all()["step_rewards"].to_pylist()
    assert [[[reward for reward in response if reward] for response in group] for group in exported] == [[[0.25, 1.5], [-1.0]]] * 6


def test_an_answer_without_a_reward(tmp_path: Path) -> None:
    _, published = built(
        tmp_path, [*(judged(1, turns=turns) for turns in ([[0.25], [-1]], [[0.25, 1.5]], [[0.25, True], [-1]], None)), judged(2)], JUDGED
    )
    reasons = ["length_mismatch", "length_mismatch", "wrong_type", "missing_field"]
    assert [f"{each.stage}/{each.reason}" for each in refusals(published)] == [f"schema/{reason}" for reason in reasons]


def test_two_answers_in_a_row_have_no_border(tmp_path: Path) -> None:
    row = judged(1)
    first, tool, last = row["responses"][0]
    halves = [{**last, "content": "It is"}, {**last, "content": "1."}]
    row |= {"responses": [[first, tool, *halves], row["responses"][1]], "turns": [[0.25, 1.5, 2.0], [-1]]}
    _, published = built(tmp_path, [row, judged(2)], JUDGED)
    assert [f"{each.stage}/{each.reason}" for each in refusals(published)] == ["tokenize/mask_differs_from_turns"]


def test_log_probabilities_are_in_all_domains_or_in_none(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "rows.jsonl", [rollout(1)])
    domains = {"a": domain(source, "group", options=KEYS), "b": domain(source, "group", options={"token_ids_key": "token_ids"})}
    workspace = workspace_in(tmp_path, {"rl": {"tokenizer": TOKENIZER, "domains": domains}})
    with pytest.raises(ConfigError, match="domains b have no logprobs_key, others have"):
        build(workspace, "rl_groups")


def test_exports_carry_them_or_refuse(tmp_path: Path) -> None:
    exports = {name: {"from": "rl_groups", "to": name} for name in ("hf_arrow", "astrai")}
    rows = [rollout(number) for number in range(3)]
    workspace, _ = built(tmp_path, rows, exports=exports)
    merged = build(workspace, "rl_groups")
    assert merged.manifest.counts["sampled"] == 6
    (arrow, astrai) = (next(each for name, each in assets_of(workspace).items() if name.endswith(form)) for form in ("hf_arrow", "astrai"))
    found = make(workspace, arrow)
    (file,) = found.directory.rglob("*.arrow")
    assert pa.ipc.open_stream(file.read_bytes()).read_all()["logprobs"].to_pylist() == [row["logprobs"] for row in rows]
    with pytest.raises(PrepAssetsError, match="no place for logprobs"):
        make(workspace, astrai)


def test_every_corruption_of_sampled_ids_is_caught(tmp_path: Path) -> None:
    workspace, published = built(tmp_path, [rollout(number) for number in range(6)])
    trials = [trial for trial in selftest(workspace, published) if trial.check == "sampled_ids" and trial.mutation]
    assert {trial.mutation for trial in trials} == {mutation.name for mutation in ROLLOUT_MUTATIONS}
    assert [trial for trial in trials if not trial.passed or trial.tried != trial.caught] == []
    untried = ["a token that was not sampled trained", "another prompt than was sampled from"]
    assert [trial.mutation for trial in trials if not trial.caught] == untried, "of one turn, and without ids of the prompt"
