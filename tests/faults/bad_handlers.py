"""Handlers that do what no handler should: import this to have them all declared."""

from . import bad_python, bad_statements, bad_transactions
from .kinds import KINDS

__all__ = ["KINDS", "bad_python", "bad_statements", "bad_transactions"]
