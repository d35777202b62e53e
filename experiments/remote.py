"""What a worker runs that may never have seen this checkout: it is sent by value, so it imports nothing of it."""

from __future__ import annotations

import importlib
import sys
from typing import Any

__all__ = ["call"]


def call(checkout: str, module: str, function: str, *arguments: Any) -> Any:
    """Return a function's result, with the checkout on the path of modules."""
    if checkout not in sys.path:
        sys.path.insert(0, checkout)
    return getattr(importlib.import_module(module), function)(*arguments)
