"""Where `minbert.engine.saving` stood in the first edition: folders saved then name this path in modules.json, and sentence-transformers imports it."""
from .engine.saving import TransformModule

__all__ = ["TransformModule"]
