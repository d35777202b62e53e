"""hedgelab."""
