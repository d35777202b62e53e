"""Figures of results. They compute nothing beyond aggregation."""
