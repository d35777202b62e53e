r"""MetaSD-UCB on an on-path block divergence.

The paper's second reward, BD (Kim, Jung, Yun 2026, arXiv 2604.05417), is the mean of 1 - TV(p, q) = gamma over the
whole drafted block. Past the first rejection those positions lie on the drafter's own continuation, off the verified
path, and no trace holds them. Here a round pays the mean of gamma over the drafts that lie on the path, depths
0 .. min(K, accepted + 1) - 1: every accepted draft and the first rejected one. That is another reward than the paper's,
hence another name: which depths it averages depends on where acceptance ended. Index and parameters are `metasd`'s.
"""

from __future__ import annotations

from dataclasses import replace

from hedgelab.algorithms import metasd

LEARNER = replace(
    metasd.LEARNER,
    name="metasd-onpath",
    reward="block",
    bound="as ucb-tuned, for its own reward",
    reference="after Kim, Jung & Yun 2026, arXiv 2604.05417: BD on the path alone",
)
