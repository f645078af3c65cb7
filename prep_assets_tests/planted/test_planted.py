"""Bugs planted in code that builds, as real ones are: a build of a small workspace must be stopped by its checks."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from planted.candidates import ROOMS, Edit, modules, plants

from prep_assets_tests.conftest import ROOT
from prep_assets_tests.effort import SOAK

Change = tuple[str, str, str, str]
"""The workspace that is built, a module, a text of it, and what is planted in its place."""
PLANTS: Mapping[str, Change] = {
    "the last trained stretch of chats in blocks": (
        "sft",
        "text/forms",
        "+ form.breaks[1], form.weights",
        "+ form.breaks[1], form.weights * (np.cumsum(form.weights[::-1] > 0)[::-1] != 1)",
    ),
    "the last trained stretch of a form": (
        "sft",
        "text/forms",
        "np.array([weight for _, weight in steps], np.float32)",
        "np.array([weight * (at < max(n for n, (_, one) in enumerate(steps) if one or not n)) for at, (_, weight) in enumerate(steps)], np.float32)",
    ),
    "where stretches of chats in blocks begin": (
        "sft simple",
        "text/forms",
        "frame[:, form.breaks[0]] + form.breaks[1]",
        "frame[:, form.breaks[0]] + form.breaks[0]",
    ),
    "the order of regions": (
        "rl steps",
        "text/render",
        "if left.turn == right.turn and left.order > right.order:",
        "if left.turn == right.turn or left.order > right.order:",
    ),
    "which shard a worker carries out": (
        "two workers",
        "workers/pool",
        '("shard", (worker.shards[-1], plan_header))',
        '("shard", (worker.shards[0], plan_header))',
    ),
    "the pin of a folder of images": ("sft images", "pipeline/sources", 'return {} if pin is None else {"images": pin}', "return {}"),
    "folders in a folder of images": (
        "sft images",
        "data/pins",
        'yield from _walk_files(Path(entry.path), f"{name}/", (*ancestors, inode))',
        "continue",
    ),
    "what SkyRL trains": (
        "exports sft",
        "extensions/exports/huggingface",
        '"loss_mask": ragged(block.trained.astype(np.int8)',
        '"loss_mask": ragged(block.next_trained.astype(np.int8)',
    ),
    "which documents are cut": ("pretrain fim", "text/documents", "if numbers[0] >= rate:", "if numbers[-1] >= rate:"),
    "which part of a document comes first": ("pretrain fim", "text/documents", "numbers[1] < spm_rate)", "numbers[0] < spm_rate)"),
    "results of calls": ("sft qwen3", "schemas/turns", "and turn.tool_call_id not in made", "and turn.tool_call_id in made"),
    "where reasoning stands": (
        "sft qwen3",
        "schemas/turns",
        "[*reasoning_regions(message, where, weight), *regions, *call_regions]",
        "[*regions, *reasoning_regions(message, where, weight), *call_regions]",
    ),
    "where calls stand": (
        "sft qwen3",
        "schemas/turns",
        "where, weight), *regions, *call_regions]",
        "where, weight), *call_regions, *regions]",
    ),
    "characters of bytes": (
        "sft",
        "text/spans",
        "np.append(np.flatnonzero((data & 0xC0) != 0x80), len(data))",
        "np.append(len(data), np.flatnonzero((data & 0xC0) != 0x80))",
    ),
    "stops after calls": (
        "sft qwen3",
        "config/mask",
        "if part.region.kind not in MEDIA or part.turn not in ends:",
        "if part.region.kind not in MEDIA and part.turn not in ends:",
    ),
    "the tightest row": (
        "sft",
        "packing/strategies",
        "at = bisect_left(self._spaces, length)",
        "at = len(self._spaces) - (self._spaces[-1:] >= [length])",
    ),
    "places of padding": (
        "sft topology",
        "extensions/topology/aligned_parquet",
        "spread(block.document_lengths, rooms + 1)",
        "spread(block.document_lengths, rooms)",
    ),
    "what an assistant says": (
        "sft topology",
        "extensions/topology/megatron_sft",
        '"assistant" if trained else "user"',
        '"user" if trained else "assistant"',
    ),
    "rows of like work": ("sft topology", "packing/balance", "argsort(-work_of(plan))", "argsort(work_of(plan))"),
    "room for padding": (
        "sft topology",
        "packing/strategies",
        "_placed(rounded_up(take(longest_first.length, members), align), row_len, strategy)",
        "_placed(take(longest_first.length, members), row_len, strategy)",
    ),
    "the side of the split": (
        "sft qwen3",
        "pipeline/examples",
        'int.from_bytes(identity[:8], "big")',
        'int.from_bytes(identity[8:], "big")',
    ),
    "a duplicate": ("sft", "pipeline/examples", "for row, other in firsts.items()}", "for row, other in [*firsts.items()][1:]}"),
    "a gold": (
        "rl",
        "extensions/datasets/gsm8k",
        "return Prompt((turn(USER, question.strip()),), gold_number(answer))",
        'return Prompt((turn(USER, question.strip()),), gold_number(answer) + "0")',
    ),
    "the shuffle of packed rows": ("sft", "packing/mixing", "if shuffle and domains:", "if not shuffle and domains:"),
    "the seed of a blend": ("pretrain", "extensions/blends/assets", 'seed=options["seed"]', 'seed=options["seed"] + 1'),
    "the shuffle of pairs": (
        "preference",
        "extensions/lines/merging",
        "seed = target.family.seed if shuffled and not stream.held_out else None",
        "seed = target.family.seed if shuffled and stream.held_out else None",
    ),
    "the end of a span": (
        "sft",
        "text/spans",
        "all_steps += [(start, weight), (span.end, 0.0)]",
        "all_steps += [(start, weight), (span.end - 1, 0.0)]",
    ),
    "the end of a cut": (
        "sft simple",
        "text/spans",
        'keep[slice(limit, None) if mode == "end"',
        'keep[slice(limit - 1, None) if mode == "end"',
    ),
    "negative texts": (
        "contrastive",
        "extensions/contrastive/schema",
        '"query"), texts, negatives, None',
        '"query"), texts, negatives[:1], None',
    ),
    "the type of ids": ("pretrain fim", "pipeline/asset", 'if family.output.dtype == "auto":', 'if family.output.dtype != "auto":'),
    "a row of a packed table": (
        "sft",
        "stores/h5",
        "self.write(name, self._appended, block[name])",
        "self.write(name, self._appended, block[name][::-1])",
    ),
    "what a certificate says of tools": (
        "sft ids",
        "text/conversation",
        "if isinstance(schema.get(key), str) and schema[key].strip():",
        "if not (isinstance(schema.get(key), str) and schema[key].strip()):",
    ),
    "the input of an instruction": (
        "sft instructions",
        "schemas/instructions",
        'return "" if key is None else text_of(row, key, required=False)',
        'return "" if key is None else text_of(row, key, required=False)[:0]',
    ),
    "sides of a pair": (
        "preference",
        "schemas/messages",
        "for key in (chosen_key, rejected_key))\n        return pair_of(row, prompt, *answers, tools_key=read.tools_key)",
        "for key in (rejected_key, chosen_key))\n        return pair_of(row, prompt, *answers, tools_key=read.tools_key)",
    ),
    "reasoning": ("sft qwen3", "schemas/turns", "for text in list(texts.values())[:1]]", "for text in list(texts.values())[:0]]"),
    "order of tool results": ("sft qwen3", "schemas/turns", "        turns.sort(key=", "        turns.copy().sort(key="),
    "a template option": ("sft phi", "text/template", "            **self.options,", "            **dict[str, Any](),"),
    "turns of users": ("sft", "schemas/turns", "elif role == USER and not any(", "elif role == USER and any("),
    "the last digit of an answer": (
        "sft instructions",
        "extensions/datasets/gsm8k",
        'answered = f"<answer>{final}</answer>"',
        'answered = f"<answer>{final[:-1]}</answer>"',
    ),
    "the history of an instruction": (
        "sft instructions",
        "schemas/instructions",
        "return with_system((*history_turns, turn(USER, question)), system)",
        "return with_system((*history_turns, turn(USER, question)), system * 0)",
    ),
    "arguments of a call": (
        "sft qwen3",
        "schemas/turns",
        'normalized = {"name": name, "arguments": arguments or {},',
        'normalized = {"name": name, "arguments": dict(sorted((arguments or {}).items())),',
    ),
    "a row that is not too long": (
        "sft instructions",
        "schemas/instructions",
        'needed(question, "empty_prompt", prompt_key)',
        'needed(question * (len(question) < 90), "empty_prompt", prompt_key)',
    ),
    "the prompt of a group": (
        "rl",
        "extensions/rl/schemas",
        "return Group(prompt, responses, rewards, sampled=sampled, steps=steps, **offered(row))",
        "return Group(prompt, responses[::-1], rewards, sampled=sampled, steps=steps, **offered(row))",
    ),
    "the branch of a session": (
        "sft sessions",
        "extensions/sessions/harness",
        "elif left := [at for at in spoken if at not in kept]:",
        "elif left := [at for at in spoken]:",
    ),
    "results between the blocks of a message": (
        "sft sessions",
        "extensions/agents/logs",
        "for place, block in blocks)\n            continue",
        "for place, block in blocks)\n            pass",
    ),
    "texts of a result": (
        "sft sessions",
        "extensions/sessions/harness",
        "f\"{parts[-1]['text']}\\n{text}\"",
        'f"{text}"',
    ),
    "a context that is copied": (
        "sft sessions",
        "extensions/atif/schema",
        'message |= {"loss_weight": 0} if source == "agent" else {}',
        "message |= {}",
    ),
    "log-probabilities of a call": (
        "rl traces",
        "extensions/atif/schema",
        "len(wrote if logprobs is None else logprobs) != len(wrote):",
        "len(wrote if logprobs is None else logprobs) >= len(wrote):",
    ),
    "how full a shard is": (
        "rl",
        "stores/shards",
        "if size and self._tokens and self._tokens + size > self._limit:",
        "if not (size and self._tokens and self._tokens + size > self._limit):",
    ),
    "a set of digests": (
        "rl",
        "stores/files",
        "return self._table[self._find_slot(*_halves(digest))] != 0",
        "return self._table[self._find_slot(*_halves(digest))] != 1",
    ),
    "a trace that has lost a part": (
        "rl traces",
        "extensions/rl/groups",
        "if lost := [word for word in left if not _TAG.fullmatch(word)]:",
        "if lost := []:",
    ),
    "long documents": (
        "pretrain fim",
        "pipeline/documents",
        "for i in np.flatnonzero(lengths > max_seq_len) if max_seq_len is not None else ():",
        "for i in np.flatnonzero(lengths > max_seq_len // 2) if max_seq_len is not None else ():",
    ),
    "items of a blend": (
        "pretrain",
        "extensions/blends/assets",
        'np.broadcast_to(np.int64(window), windows_in(len(store.columns["tokens"].values), window))',
        'np.broadcast_to(windows_in(len(store.columns["tokens"].values), window), np.int64(window))',
    ),
    "weights of messages": (
        "sft",
        "schemas/turns",
        "weight = loss_weight_of(message, where)",
        "weight = (None, loss_weight_of(message, where))[0]",
    ),
    "the size of a weight": (
        "sft",
        "schemas/turns",
        "weight = loss_weight_of(message, where)\n        place",
        "weight = None if loss_weight_of(message, where) else loss_weight_of(message, where)\n        place",
    ),
    "a margin": ("preference", "schemas/turns", 'as_number(row["margin"], "margin")', '-as_number(row["margin"], "margin")'),
    "the order of rewards": ("rl", "extensions/rl/schemas", "return rewards\n", "return tuple(sorted(rewards))\n"),
    "tools of chats that become several records": (
        "sft turns",
        "schemas/turns",
        'tools.append(tool if is_wrapped else {"type": "function", "function": dict(tool)})',
        "pass",
    ),
    "reasoning of answers in lines": (
        "preference messages",
        "extensions/lines/write",
        'message["reasoning_content"] = texts[THINKING]',
        "pass",
    ),
    "golds that are numbers": ("rl", "extensions/rl/prompts", 'if example.verifier == "number":', 'if example.verifier != "number":'),
    "lines that only messages hold": (
        "preference",
        "extensions/lines/write",
        'if not auto or refusal.reason != "not_plain_text":',
        'if auto or refusal.reason != "not_plain_text":',
    ),
    "all tools but the first": ("sft qwen3", "text/template", '"tools": list(tools) or None', '"tools": list(tools)[:1] or None'),
    "what a cut keeps": (
        "sft prompts",
        "text/spans",
        "removed = min(excess, end - start - role_keep.least)",
        "removed = min(excess + 1, end - start - role_keep.least)",
    ),
    "answers behind reasoning in tags": (
        "sft qwen3",
        "text/render",
        "if not any(part.kind != THINKING for part in regions):",
        "if any(part.kind != THINKING for part in regions):",
    ),
    "the padding of rows": (
        "exports sft",
        "extensions/exports/megatron",
        "        if source.width:\n            columns",
        "        if not source.width:\n            columns",
    ),
    "the mask of shards": (
        "exports sft",
        "extensions/exports/astrai_and_tlfs",
        'if source.has("weight") else ("tokens",)',
        'if not source.has("weight") else ("tokens",)',
    ),
    "rows of a file": ("exports pretrain", "extensions/exports/media", "row[0] // rows_per_file", "row[0] * rows_per_file"),
    "tokens of a chunk": (
        "exports pretrain",
        "extensions/exports/token_files",
        "chunk_bytes // (4 * block_size)",
        "chunk_bytes * (4 * block_size)",
    ),
    "lines that stood before": (
        "pretrain fields",
        "extensions/quality/gopher",
        "if part in seen or seen.add(part)]",
        "if part not in seen or part]",
    ),
    "words of each text of a block": (
        "pretrain fields",
        "extensions/quality/passages",
        "repeated = _covered(again, counts, size)",
        "repeated = _covered(again, counts, size) + 1",
    ),
    "which words are common": (
        "schemas sft 3",
        "extensions/cerebras/hooks",
        "key=lambda word: word.strip() in common)",
        "key=lambda word: word.strip() not in common)",
    ),
    "which example a verdict is on": (
        "pretrain fields",
        "extensions/quality/judging",
        "self.noted.setdefault(base + number,",
        "self.noted.setdefault(base - number,",
    ),
    "reasoning twice": (
        "sft simple",
        "text/render",
        "if field_reasoning and field_reasoning != reasoning:",
        "if not (field_reasoning and field_reasoning != reasoning):",
    ),
    "that a domain is judged at all": (
        "pretrain fields",
        "extensions/quality/judging",
        "verdicts.add(block)",
        "pass",
    ),
    "labels of ids": (
        "sft ids",
        "extensions/token_ids/tokenized",
        "    trained = weights != 0\n    differing",
        "    trained = weights != 1\n    differing",
    ),
    "what a prompt says": (
        "schemas rl groups 0",
        "extensions/rl/schemas",
        'return (turn(USER, needed(prompt, "empty_prompt", key)),)',
        'return (turn(needed(prompt, "empty_prompt", key), USER),)',
    ),
    "white space around an answer": (
        "schemas sft 0",
        "schemas/instructions",
        "answer.strip() if strip else answer",
        "answer.strip() if not strip else answer",
    ),
    "the form of lines": ("preference", "extensions/lines/write", "set(_weights(turns[0])) != {1.0}", "set(_weights(turns[0])) == {1.0}"),
    "a template option of a row": (
        "sft phi",
        "schemas/turns",
        '"template_options": options_by_name}',
        '"template_options": {}}',
    ),
    "an empty system turn": (
        "schemas sft 0",
        "extensions/cerebras/hooks",
        "turn.role != SYSTEM or turn.text.strip()",
        "turn.role == SYSTEM or turn.text.strip()",
    ),
    "the key of reasoning": (
        "sft ffd",
        "text/environment",
        "reasoning=reasoning or REASONING_KEYS[0]",
        "reasoning=reasoning or REASONING_KEYS[1]",
    ),
    "the wrapper of a tool": ("sft turns", "schemas/turns", "tool if is_wrapped else", "tool if not is_wrapped else"),
    "the type of a mask": (
        "pretrain images",
        "pipeline/tokens",
        "    if ((loss != 0) & (loss != 1)).any():",
        "    if not (((loss != 0) & (loss != 1)).any()):",
    ),
    "a folder without lines": (
        "schemas preference texts 0",
        "extensions/lines/tokens",
        "            continue\n        assert",
        "            pass\n        assert",
    ),
    "the columns of a layout": (
        "sft ids",
        "extensions/exports/huggingface",
        '    elif layout == "llama_factory":',
        '    elif layout != "llama_factory":',
    ),
    "the mixing of hashes": ("sft quality", "extensions/quality/words", "    values *= SPREAD\n", "    values *= 1\n"),
    "labelled answers": (
        "preference ranked",
        "extensions/preference/lines",
        '"completion": example.turns[-1:]}',
        '"completion": example.turns[-1 + 1:]}',
    ),
    "the last passage": ("sft quality", "extensions/leaks/overlap", "len(numbers) - size + 1", "len(numbers) - size + 0"),
    "golds of no reward": ("rl quality", "extensions/quality/verified_golds", 'return "" if passes else', 'return "" if not passes else'),
    "equal units": ("rl quality", "extensions/quality/rl_golds", "if unit != other or any(", "if unit == other or any("),
    "signs behind addresses": (
        "sft redacted",
        "extensions/quality/redaction",
        'if text[end : end + 1] == "_":',
        'if text[end : end + 1] == " ":',
    ),
    "the first kind of private data": ("sft quality", "extensions/quality/private_data", 'f"private_{there[0]}"', 'f"private_{there[-1]}"'),
    "the largest operand": ("rl", "extensions/rl/schemas", "operand = divmod(index, largest + 1)", "operand = divmod(index, largest - 1)"),
    "a contrastive text as long as the limit": (
        "contrastive",
        "extensions/contrastive/lines",
        "if longest > self._limit:",
        "if longest > self._limit - 30:",
    ),
    "a result of a call stands twice": (
        "sft turns",
        "schemas/turns",
        "            ordered += results\n            continue",
        "            ordered += results\n            pass",
    ),
    "a section of the fewest characters": (
        "schemas pretrain 0",
        "extensions/preprocess/sections",
        "if length < min_chars or",
        "if length <= min_chars or",
    ),
    "entries of a teacher beside their tokens": (
        "sft ids",
        "extensions/distillation/entries",
        "for by in (1, 2, 0)",
        "for by in (2, 2, 0)",
    ),
    "a positive text among the negatives": ("contrastive graded", "extensions/contrastive/lines", "earlier[:8]", "earlier[:7]"),
    "scores of contrastive texts": (
        "contrastive graded",
        "extensions/contrastive/schema",
        "if len(scores) != texts:",
        "if len(scores) == texts:",
    ),
    "a prompt that a side repeats": (
        "schemas preference 1",
        "extensions/preference/schemas",
        "turns[len(prompt) :]",
        "turns[len(prompt) + 1 :]",
    ),
    "the margin of ranked responses": (
        "preference ranked",
        "extensions/agents/rankings",
        "return changed(made, margin=difference) if margin else made",
        "return made",
    ),
    "steps that end with a token": ("rl steps", "extensions/rl/groups", "if said != text.strip() and", "if said == text.strip() and"),
    "marks of the ends of steps": (
        "rl steps",
        "extensions/rl/groups",
        "rewards[of_step[-1]] = 1, reward",
        "rewards[of_step[-1]] = 2, reward",
    ),
    "numbers of rejected records": (
        "contrastive graded",
        "data/quarantine",
        "{file}{colon}{int(number) + by}",
        "{file}{colon}{int(number) - by}",
    ),
    "the form of merged lines": (
        "schemas preference texts 0",
        "extensions/lines/merging",
        "if as_messages and isinstance(",
        "if as_messages or isinstance(",
    ),
    "a column of attention": ("pretrain images", "pipeline/tokens", "if not attended.all():", "if attended.all():"),
    "a stream of nothing held out": ("pretrain images", "pipeline/asset", '"test_fraction") > 0 or', '"test_fraction") <= 0 or'),
    "the caption of an image in the first phase": (
        "sft images",
        "extensions/cerebras/images",
        "drop=phase == 1),) if caption",
        "drop=phase == 0),) if caption",
    ),
    "control tokens that are not stripped": ("sft prompts", "text/conversation", "if shorter == text:", "if shorter != text:"),
    "the form of lines where it is open": (
        "rl",
        "extensions/lines/write",
        'or configured == "messages" else',
        'or configured != "messages" else',
    ),
    "which scores contradict each other": (
        "schemas preference 1",
        "extensions/datasets/ultrafeedback",
        "and rejected is not None and chosen < rejected",
        "and rejected is not None and chosen >= rejected",
    ),
    "weights that are true or false": (
        "schemas sft 3",
        "schemas/fields",
        "float(value) if isinstance(value, bool) else as_number(value, where)",
        "float(value) if not isinstance(value, bool) else as_number(value, where)",
    ),
    "reasoning in a line": (
        "preference messages",
        "extensions/lines/write",
        'Region(THINKING, message["reasoning_content"])',
        'Region(message["reasoning_content"], THINKING)',
    ),
    "where the tokens of a document begin": (
        "pretrain images",
        "text/encode",
        "running[per_item[:-1] - 1], 0) if",
        "running[per_item[:-1] - 1], 1) if",
    ),
    "images that are in no row": ("sft images", "extensions/media/files", "len(number) - len(order)", "len(number) + len(order)"),
    "typed control tokens that are refused": ("sft glm4", "text/conversation", 'if mode == "refuse":', "if False:"),
    "how many control tokens are typed": ("sft simple", "text/conversation", "    if not tokens:", "    if tokens:"),
    "answers without a stop": ("sft glm4", "text/spans", "all(stop.turn != last for stop", "all(stop.turn == last for stop"),
    "fields without a text": (
        "schemas pretrain 0",
        "extensions/preprocess/sections",
        "if isinstance(value, int | float) and not isinstance(value, bool):",
        "if not (isinstance(value, int | float) and not isinstance(value, bool)):",
    ),
    "the numbers of shards": ("schemas preference texts 0", "stores/shards", "{self._shards - 1:04d}", "{self._shards + 1:04d}"),
    "the folder of groups that are held out": ("rl steps", "extensions/rl/groups", "if holds_out(target", "if not holds_out(target"),
    "streams of no domain": (
        "schemas preference texts 0",
        "extensions/lines/merging",
        "if parts and not with_file:\n            continue",
        "if parts and not with_file:\n            pass",
    ),
    "tokens that may be untrained": (
        "sft ids",
        "text/certify",
        '([""] if vocabulary.chat_template else',
        '([""] if not vocabulary.chat_template else',
    ),
    "flags of answers that are cut": (
        "sft simple",
        "schemas/fields",
        "weights[key] = float(flag) if isinstance(flag, bool)",
        "float(flag) if isinstance(flag, bool)",
    ),
    "whose a completion is": (
        "preference ranked",
        "schemas/messages",
        "turn(ASSISTANT if template else COMPLETION, completion)",
        "turn(completion, ASSISTANT if template else COMPLETION)",
    ),
    "streams without a record": (
        "rl steps",
        "extensions/lines/merging",
        'if "/" in stem and not len(merged):',
        'if "/" in stem or not len(merged):',
    ),
    "which step found it": (
        "pretrain fields",
        "extensions/quality/steps",
        "return Configured(name, action, lambda: step",
        "return Configured(action, name, lambda: step",
    ),
    "empty calls in lines": ("rl", "extensions/lines/write", "    if calls:\n        message", "    if not calls:\n        message"),
    "weights in lines that say nothing": (
        "rl",
        "extensions/lines/write",
        "if turn.role not in ANSWERS or set(weights) <= {1.0}:",
        "if not (turn.role not in ANSWERS or set(weights) <= {1.0}):",
    ),
    "tags of regions": (
        "schemas pretrain 0",
        "extensions/cerebras/semantic",
        "self._add_tags(untagged, pretraining) if tagged",
        "self._add_tags(untagged, pretraining) if not tagged",
    ),
    "the system prompt of a log": (
        "sft sessions",
        "extensions/agents/logs",
        'text_of(block, "text", place) for place, block in objects(system',
        'text_of(block, "type", place) for place, block in objects(system',
    ),
    "the version of a trajectory": (
        "sft sessions",
        "extensions/atif/schema",
        "if version is None or int(version[1]) > NEWEST:",
        "if version is None and int(version[1]) > NEWEST:",
    ),
    "numbers of a data set": ("sft qwen3", "schemas/fields", "return values if places else []", "return values if values else []"),
    "one list of tools": (
        "sft qwen3",
        "schemas/turns",
        "if any(tools != tool_lists[0] for tools in tool_lists):",
        "if any(len(tools) > 2 for tools in tool_lists):",
    ),
    "text beside a call": (
        "sft qwen3",
        "schemas/reader",
        "if is_beside and (space.loss_weight, space.attend) != (neighbour.loss_weight, neighbour.attend):",
        "if space.kind == TEXT and neighbour.kind == TOOL_CALL:",
    ),
    "the weight of a reward": ("rl runs", "extensions/agents/runs", 'part.get("weight", 1.0)', 'part.get("weight", 2.0)'),
    "the reward of a run": (
        "rl runs",
        "extensions/agents/runs",
        "rewards[each.run] for each in rows",
        "rewards[-1 - each.run] for each in rows",
    ),
    "the prompt of runs": ("rl runs", "extensions/agents/runs", "    if not cut:", "    if not cut or len(rows[0].ids) % 2:"),
    "words that a sub-agent was given": (
        "rl traces",
        "extensions/rl/groups",
        "if sampled.runs and sampled.runs[number][1] else 0",
        "if sampled.runs and sampled.runs[number][0] else 0",
    ),
    "answers of a sub-agent": ("rl traces", "extensions/rl/groups", "    if not said[0][0]:", "    if not said[-1][0]:"),
    "where sequences of Megatron begin": (
        "exports pretrain",
        "extensions/exports/megatron",
        "(np.cumsum(lengths) - lengths) * self._dtype.itemsize",
        "(np.cumsum(lengths) - lengths) // self._dtype.itemsize",
    ),
}
"""Those that the checks stop."""
LONG = {"exports sft", "exports pretrain", "pretrain fields", "sft phi", "sft prompts"}
OFTEN = {
    of for of in (change[0] for change in PLANTS.values()) if of not in LONG and sum(change[0] == of for change in PLANTS.values()) > 2
}
FOUND_FIRST = (
    *("the last trained stretch of a form", "characters of bytes", "reasoning", "order of tool results", "weights of messages"),
    *("results between the blocks of a message", "a set of digests", "how full a shard is", "the system prompt of a log"),
    *("numbers of a data set", "words that a sub-agent was given"),
)
"""Of the bugs that were published once, those that another one stands for below."""
FIXED = [
    *FOUND_FIRST,
    *{(of, file.partition("/")[0]): name for name, (of, file, *_) in reversed(PLANTS.items()) if of in OFTEN}.values(),
]
"""Those of `make test`: one of each room in a workspace, and none of those that take long to build or are built for one or two."""


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """What became of each plant: all of them are tried by one process, whichever of the processes of this run asks first."""
    shared = tmp_path_factory.getbasetemp().parent if "PYTEST_XDIST_WORKER" in os.environ else tmp_path_factory.getbasetemp()
    asked, answers = shared / "plants.json", shared / "what_became_of_plants.json"
    with (shared / "plants.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not answers.exists():
            asked.write_text(json.dumps({name: PLANTS[name] for name in (PLANTS if SOAK else FIXED)}), "utf-8")
            command = [sys.executable, "-m", "planted", str(asked), str(answers)]
            ended = subprocess.run(command, env={**os.environ, "PYTHONPATH": "tools"}, cwd=ROOT, capture_output=True, text=True)
            assert answers.exists(), ended.stderr[-3000:]
    found: Mapping[str, Any] = json.loads(answers.read_text("utf-8"))
    return found


@pytest.mark.parametrize("name", [name if name in FIXED else pytest.param(name, marks=pytest.mark.soak) for name in PLANTS])
def test_a_planted_bug_is_stopped(results: Mapping[str, Any], name: str) -> None:
    assert results[name]["verdict"] == "stopped", results[name]


@pytest.mark.parametrize("kinds", [["sft"], ["preference", "rl", "contrastive", "pretrain", "exports", "schemas"]], ids=["sft", "others"])
def test_every_workspace_without_a_bug_is_built(tmp_path: Path, kinds: list[str]) -> None:
    """A check that stops right rows would leave its workspace out of `make planted`; all but the large one and that of two workers. In a process of its own,
    as trials compare no tokenizer with transformers."""
    command = [sys.executable, "-m", "planted.clean", str(tmp_path), *kinds]
    ended = subprocess.run(command, env={**os.environ, "PYTHONPATH": "tools"}, cwd=ROOT, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stdout + ended.stderr[-3000:]


@pytest.mark.parametrize("room", [room if room in ("packing", "workers") else pytest.param(room, marks=pytest.mark.soak) for room in ROOMS])
def test_every_change_of_a_room_is_another_program(room: str) -> None:
    """One in 900."""
    found = [bug for module in modules() if module.partition("/")[0] == room for bug in plants(module)]
    for bug in found[::900]:
        assert bug.before != bug.after
        assert bug.code() != compile(bug.path.read_text("utf-8"), str(bug.path), "exec", dont_inherit=True), bug


@pytest.mark.parametrize("name", PLANTS)
def test_what_is_planted_by_hand_has_a_place(name: str) -> None:
    edit = Edit.of(*PLANTS[name][1:])
    assert edit.function and edit.code()


def test_an_edit_needs_a_text_that_is_there_once() -> None:
    with pytest.raises(ValueError, match="0 times 'no such text'"):
        Edit.of("text/spans", "no such text", "other")
    edit = Edit.of("text/spans", "data = np.frombuffer(text.encode(), np.uint8)", "data = np.frombuffer(text.encode(), np.int8)")
    assert (edit.room, edit.name, edit.function) == ("text", "prep_assets.text.spans", "byte_table")
