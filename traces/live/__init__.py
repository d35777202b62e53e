"""Parts of the live decoder: who drafts, what is drafted, what is accepted; `traces.decode` is the loop."""
