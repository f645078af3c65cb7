"""What happens to the columns of rows of each schema, written down apart from the schemas: data for `source_texts`.

An entry lists columns in the order in which their texts stand in a record: ``role:option=column>rule``.

- The role says whose text it is and on which side it stands: ``chosen``, ``rejected``, ``responses`` and the fields of lines are sides, all others
  are the prompt, or the one conversation or document of a record. ``skip`` is a column without text, ``unread`` one that the schema leaves out.
- The option of the schema names the column; ``=column`` is its default, or a fixed name where no option stands before it.
- The rule says what becomes of a value, by its name in `source_texts.RULES`; without one its strings stand verbatim, and messages are read as messages.

All other columns are known by their names (`NAMES`), or their strings must stand in the record as they are.
"""

from __future__ import annotations

from collections.abc import Mapping

_ALPACA = "system:system_key=system user:history_key=history>exchanges user:prompt_key=instruction user:query_key=input"
_SHAREGPT = "system:system_key=system chat:messages_key=conversations"
_SIDES = "chosen:chosen_key=chosen rejected:rejected_key=rejected"
_PLAIN = "system:=system prompt:prompt_key=prompt completion:completion_key=completion"
_LLAVA = "system:=system chat:conversations_key,multi_turn_key=conversations>beside_files"
_RANKED = (
    "system:=system user:prompt_key=prompt>marked_prompt responses:responses_key=responses>{} skip:rewards_key=rewards skip:ranks_key="
)
_WORDS = "prompt:prompt_key=prompt words:completion_key=completion"
_LINES = "user:=prompt chosen:=chosen rejected:=rejected"

_ENTRIES: Mapping[str, str] = {
    # documents
    "text GeneralPretrainHandler text_read_hook": "document:text_key=text",
    "AlpacaPretrainHandler": "document:=instruction document:=input document:=output",
    "StackOverflowPythonPretrainHandler": "document:=title document:=question_body document:=answer_body",
    "SharegptPretrainHandler": "document:=conversations",
    "interleaved": "document:texts_key=texts",
    "obelics_hook": "document:caption_key=caption",
    "image_captions finetuning_image_captions_hook pretraining_image_captions_hook": "completion:caption_key=caption",
    # instructions
    "alpaca AlpacaStyleInstructionHandler": f"{_ALPACA} assistant:response_key=output",
    "GeneralInstructionHandler": "user:=instruction user:=input assistant:=output",
    "alpaca_pairwise AlpacaStylePairwiseHandler": f"{_ALPACA} {_SIDES} chosen:=output>better_and_worse",
    "R1AlpacaStyleInstructionHandler": f"{_ALPACA} gold:response_key=output>gold",
    "PPOAlpacaStyleInstructionHandler": f"{_ALPACA} unread:=output",
    "dolly": "user:instruction_key=instruction user:context_key=context assistant:response_key=response unread:=category",
    "leetcode_python LeetcodePythonInstructionHandler": (
        "user:problem_key=code_with_problem>before_code assistant:code_key=code_only assistant:explanation_key=explanation_only"
    ),
    "gsm8k": "user:question_key=question assistant:answer_key=answer>worked",
    "gsm8k_prompt": "user:question_key=question gold:answer_key=answer>final",
    "instruction": "prompt:prompt_key=prompt completion:response_key=response",
    "prompt_completion prompt_completion_text_read_hook prompt_completion_chat_read_hook": _PLAIN,
    "nlg_read_hook": "prompt:context_key=context completion:completion_key=completion",
    "common_words_mask": _WORDS,
    "ultra_chat_common_words_mask_hook": "prompt:prompt_key=prompt words:completion_key=messages>second",
    # chats
    "messages OpenAIInstructionHandler HunyuanInstructionHandler": "system:system_key=system chat:messages_key=messages",
    "chat_read_hook": "system:=system chat:multi_turn_key=messages",
    "sharegpt SharegptStyleInstructionHandler": _SHAREGPT,
    "R1SharegptStyleInstructionHandler": f"{_SHAREGPT}>answered",
    "kto": f"chat:messages_key=messages {_PLAIN} label:label_key=label>value",
    "llava finetuning_llava_hook finetuning_llava_hook_prompt_completion": _LLAVA,
    "moss MOSSMultiTurnHandler MOSSInstructionHandler": "system:system_key= chat:chat_key=chat>moss unread:=meta_instruction",
    "belle BelleMultiTurnInstructionHandler": "user:instruction_key=instruction>marked assistant:output_key=output",
    "llama3_chat llama3_1_chat_formatted_data_hook": "chat:text_key,chat_key=text>headers",
    "anthropic": "chat:request_key=.>request chat:response_key=>blocks",
    "openai_responses": "chat:request_key=.>request chat:response_key=>output",
    "semantic": "chat:array_key=semantic_data_array>regions",
    "sections": "chat:=.>sections",
    # pairs
    "sharegpt_pairwise SharegptStylePairwiseHandler": f"{_SHAREGPT} {_SIDES}",
    "hh": "chosen:chosen_key=chosen>marked rejected:rejected_key=rejected>marked",
    "preference": (
        "system:system_key=system user:prompt_key=prompt chosen:chosen_key=chosen>side rejected:rejected_key=rejected>side "
        "chosen:=chosen_messages chosen:=messages>with_better rejected:=rejected_messages rejected:=rejected_response>other_answer"
    ),
    "compared": "system:=system user:prompt_key=context first:first_key=response1>side second:second_key=response2>side skip:verdict_key=overall_preference",
    "dpo_read_hook": "system:=system user:prompt_key= chosen:chosen_key=chosen>cut rejected:rejected_key=rejected>cut",
    "ultrafeedback": (
        "system:=system user:prompt_key=prompt user:=instruction chosen:chosen_key=chosen>answer rejected:rejected_key=rejected>answer "
        "responses:completions_key=completions>rated"
    ),
    "group_pair": _RANKED.format("best_and_worst"),
    "group_best": _RANKED.format("best"),
    "group_kto": _RANKED.format("labelled"),
    "group_list": _RANKED.format("ordered"),
    "group of answers": _RANKED.format(""),
    # prompts and groups
    "arithmetic": "user:prompt_key=prompt gold:gold_key=gold>gold unread:=level",
    "rl_prompt": (
        "system:=system user:prompt_key=prompt gold:gold_key=gold>gold verifier:verifier_key=>value arguments:arguments_key=>told"
    ),
    "group": "system:=system user:prompt_key=prompt>unless_sampled responses:responses_key=responses>unless_sampled skip:rewards_key=rewards",
    "stepwise": "system:=system user:prompt_key=prompt responses:completions_key=completions>joined",
    "math_shepherd": "user:input_key=input>shepherd skip:label_key=label",
    "prm800k": "user:=question responses:=label>rated_steps",
    # texts to embed
    "contrastive": (
        "instruction:instruction_key=prompt query:query_key=query,anchor,question,ques "
        "positives:positive_key=positive,positives,pos,context_positive,positive_passages,positive_ctxs "
        "negatives:negative_key=negative,negatives,neg,context_negative,hard_negatives,negative_passages,negative_ctxs,hard_negative_ctxs"
    ),
    "ques_embed_gen_hook": "query:question_key=question",
    "ctx_embed_gen_hook": "query:context_key=context",
    # ids, which `mask_alignment`, `teacher`, `sampled_ids` and `runs` compare
    "tokenized": "skip:messages_key=messages skip:text_key=text",
    "distilled agent_steps verifiers_trace": "skip:=.",
    # lines of a store, from which tokens are made
    "lines of pairs": _LINES,
    "lines of prompts": "user:=prompt skip:=gold skip:=verifier skip:=arguments skip:=level",
}
TABLE: Mapping[str, str] = {name: entry for names, entry in _ENTRIES.items() for name in ([names] if " of " in names else names.split())}
"""Schema → its entry."""

VARIANTS: Mapping[tuple[str, str], str] = {
    ("gsm8k", "Prompt"): "gsm8k_prompt",
    ("alpaca", "Pair"): "alpaca_pairwise",
    ("sharegpt", "Pair"): "sharegpt_pairwise",
    ("group", "Pair"): "group_pair",
    ("group", "Sample"): "group_best",
    **dict.fromkeys((("group_list", "Group"), ("group_kto", "Group")), "group of answers"),
}
"""Schema and what its rows become → the schema whose entry says how."""

_IDS = "id _id idx index uid uuid guid __index_level_0__ prompt_id question_id conversation_id example_id sample_id record_id row_id doc_id"
_SOURCES = "source dataset dataset_name url uri language lang licence license timestamp date created created_at updated_at split subset meta metadata"
NAMES: Mapping[str, str] = {
    **dict.fromkeys(f"{_IDS} {_SOURCES} hash md5 sha1 sha256".split(), "skip"),
    **dict.fromkeys(("images", "image", "videos", "video", "audios", "audio"), "files"),
    **dict.fromkeys(("tools", "functions", "available_tools"), "tools"),
    "documents": "documents",
    "chat_template_kwargs": "skip",  # a render shows what they change
}
"""Columns of any schema that are no texts, or texts in another form → rule."""
