"""How a trace lies on disk: shards, their typed manifest, atomic writing, checking; `hedgelab.trace` reads it."""
