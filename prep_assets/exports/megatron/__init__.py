"""Megatron's ``.bin`` / ``.idx`` (Megatron-LM, Megatron-Bridge, NeMo, GPT-NeoX), and ModelLink's sets of pairs for instruction tuning."""
