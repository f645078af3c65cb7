"""Blends: in which order, and how often, a trainer sees the items of all domains (`pretrain_blend`, `sft_blend`). An index, which copies no token."""
