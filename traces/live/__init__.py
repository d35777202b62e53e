"""The live decoder: speculative decoding in which a learner picks the drafter of every round."""
