"""What a user writes in `configs/*.yaml`, read into frozen, typed models."""
