"""From a claimed message to an Outcome. Nothing here settles: whoever claimed does."""

from .outcome import Done, Failed, Outcome, Released
from .run import run, settlement_for

__all__ = ["Done", "Failed", "Outcome", "Released", "run", "settlement_for"]
