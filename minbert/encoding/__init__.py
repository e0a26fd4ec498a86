"""Runs the taught encoder fast: without work on padding, with fused and variable-length attention,
and with weights laid out once or rounded to 8-bit integers.
"""
