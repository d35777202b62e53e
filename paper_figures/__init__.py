"""Figures of results, one module each; they compute nothing beyond aggregation. `python -m paper_figures` draws them.

A figure is a module with `CLAIM`, the name of the claim whose results it draws, `CAPTION`, and `draw(results)`, which
returns a matplotlib figure.
"""

NAMES: tuple[str, ...] = ("acceptance", "estimators", "regret", "scaling", "delay", "domains", "pool_size", "router")
