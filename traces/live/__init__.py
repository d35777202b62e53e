"""Speculative decoding as it is recorded: drafters draft, the target verifies, what is accepted is written."""
