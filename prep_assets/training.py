"""The address of torch data sets, collators and the sampler, which the extension `training` has."""

from prep_assets.extensions.training.data_sets import *  # noqa: F403
from prep_assets.extensions.training.data_sets import __all__ as __all__
