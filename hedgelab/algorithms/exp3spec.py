r"""EXP3Spec: EXP3 on tokens that a round failed to commit.

    Zhat(i) += 1[I = i] (K + 1 - Y) / (K w(i)),        w ∝ exp(-eta_t Zhat),        eta_t = sqrt(ln N / (t N))

BanditSpec (Hou et al. 2025, arXiv 2505.15141). With the loss of a decode round, 1 - accepted / K = (K + 1 - Y) / K,
Zhat is EXP3's estimate and eta_t its anytime rate: the same algorithm by another name, so the same functions.
"""

from __future__ import annotations

from dataclasses import replace

from hedgelab.algorithms import exp3

LEARNER = replace(exp3.LEARNER, name="exp3spec", reference="Hou et al. 2025, arXiv 2505.15141; EXP3's functions")
