"""Files, locks, devices, random states, checkpoints and figures. Nothing here knows a model or
imports a chapter.
"""
