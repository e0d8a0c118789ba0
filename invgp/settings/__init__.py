"""The settings: every key of a configuration with its type, its default and its description, declared once.

A TOML file, the keywords of `invgp.define`, the configuration reference and the inference itself all use these models.
"""

from invgp.settings.inference_settings import FEWEST_FIELD_RUNS, InferenceSettings, OutputSettings, fewest_samples

__all__ = ["FEWEST_FIELD_RUNS", "InferenceSettings", "OutputSettings", "fewest_samples"]
