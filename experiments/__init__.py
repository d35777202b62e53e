"""Claims held against data, and benchmarks. Runs from a checkout: `python -m experiments.bench_replay`."""
