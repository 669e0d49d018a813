"""Weft in Python: a thin face of weft.h. docs/python.md describes every name."""
from ._lib import Error

__all__ = ["Error"]
