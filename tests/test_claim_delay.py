"""Claim 5: its numbers by independent recomputation, planted errors, and that every question is answered."""

import heapq
import math

import numpy as np
import pytest

import hedgelab as hl
from experiments.claim import FAILS, HOLDS, Result, Results, findings
from experiments.claims import delay
from experiments.claims.delay import asked, measure
from experiments.claims.delay.own_delays import bold
from paper_figures import delay as figure_of
from tests.sizes import needs_jit

pytestmark = needs_jit  # a claim's quick settings are a matter of minutes in plain Python


@pytest.fixture(scope="module")
def quick(quick):
    return quick("delay")


def again(results, chosen):
    """The results with those that `chosen` picks by setting run once more, under whatever was planted."""
    return Results(
        [Result(each.setting, delay.run(each.setting, 0)) if chosen(each.setting) else each for each in results]
    )


def verdicts(results):
    return {found.name: found for found in findings("delay", delay, results)}


def test_every_question_is_answered(quick):
    found = verdicts(quick)
    assert list(found) == list(delay.CLAIM.questions)
    for name, question in delay.CLAIM.questions.items():
        if question.comparisons > 1:
            assert len(found[name].answer.cases()) == question.comparisons, name
    assert found["rate"].verdict == FAILS
    assert found["bounds"].verdict == HOLDS


# ------------------------------------------------------------------ independent recomputation


def naive_late_hedge(losses, rate, late):
    """Regret of exponential weights with one rate when the loss of round s is used from round s + late[s] + 1 on."""
    total, own = np.zeros(losses.shape[1]), 0.0
    for t, row in enumerate(losses):
        seen = [s for s in range(t) if s + late[s] < t]
        w = np.exp(-rate * losses[seen].sum(axis=0)) if seen else np.ones(len(row))
        own += float(w @ row / w.sum())
        total += row
    return own - total.min()


def naive_bold(losses, rate, late):
    """The same for BOLD: every round goes to the lowest copy that has all of its losses."""
    n = losses.shape[1]
    played, own = [], 0.0  # (copy, round) of what was played
    for t, row in enumerate(losses):
        waiting = {copy for copy, s in played if s + late[s] >= t}
        copy = next(c for c in range(t + 1) if c not in waiting)
        mine = [s for c, s in played if c == copy]
        w = np.exp(-rate * losses[mine].sum(axis=0)) if mine else np.ones(n)
        own += float(w @ row / w.sum())
        played.append((copy, t))
    return own - losses.sum(axis=0).min()


@pytest.mark.parametrize(
    ("policy", "naive"),
    [("stale hedge", naive_late_hedge), ("bold hedge", naive_bold), ("bold hedge, varying delay", naive_bold)],
)
def test_worlds_by_hand(policy, naive):
    t, d = 200, 5
    setting = {"kind": "world", "world": "gap", "policy": policy, "rounds": t, "drafters": 4, "seeds": 1, "delays": [d]}
    arrays = delay.run(setting, 7)
    losses = hl.worlds.gap(t, 4, 0.1).array(seed=7)
    late = np.full(t, d)
    if policy.endswith("varying delay"):
        late = np.random.default_rng([7, d]).integers(0, d + 1, t)
    missing = [sum(1 for s in range(now) if s + late[s] >= now) for now in range(t)]
    if policy == "stale hedge":
        rate, bound = math.sqrt(8 * math.log(4) / (t + 2 * sum(missing))), (t + 2 * sum(missing)) * math.log(4) / 2
    else:
        copies = max(missing) + 1
        rate, bound = math.sqrt(8 * math.log(4) * copies / t), copies * t * math.log(4) / 2
    assert arrays["regret"][0, 0] == pytest.approx(naive(losses, rate, late), abs=1e-9)
    assert arrays["bound"][0, 0] == pytest.approx(math.sqrt(bound))


def test_own_delays_are_bold_where_all_are_alike():
    losses = hl.worlds.gap(300, 4, 0.2).array(seed=1)
    own = bold(lambda t, probs, rng: losses[t], np.full(4, 6), 300, 0.3, 0)
    game = hl.play(losses, hl.learner("hedge", learning_rate=0.3), delay=6, delay_mode="bold")
    assert own == pytest.approx(game.regret, abs=1e-9)


def test_own_delays_follow_the_pick_by_hand():
    # drafter 0 is 3 rounds late; only copies matter, so recompute from the picks that the same stream of draws makes
    losses = hl.worlds.gap(120, 2, 0.3).array(seed=2)
    late = np.array([3, 0])
    draw = np.random.default_rng([5, 0])
    heap, total, due, own = [], {}, [], 0.0
    for t, row in enumerate(losses):
        for entry in [e for e in due if e[0] == t]:
            heapq.heappush(heap, entry[1])
            total[entry[1]] = total[entry[1]] + entry[2]
        copy = heapq.heappop(heap) if heap else len(total)
        total.setdefault(copy, np.zeros(2))
        first = 1 / (1 + math.exp(-0.5 * (total[copy][1] - total[copy][0])))
        own += first * row[0] + (1 - first) * row[1]
        pick = 0 if draw.random() <= first else 1
        due.append((t + late[pick] + 1, copy, row))
    expected = own - losses.sum(axis=0).min()
    found = bold(lambda t, probs, rng: losses[t], late, 120, 0.5, 5)
    assert found == pytest.approx(expected, abs=1e-9)


def test_padding_of_a_constant_delay_is_bold():
    world, learner = hl.worlds.block(500, 4, 8), hl.learner("hedge", learning_rate=0.2)
    assert (
        hl.play(world, learner, delay=7, delay_mode="padded").regret
        == hl.play(world, learner, delay=7, delay_mode="bold").regret
    )


@pytest.fixture
def tiny(monkeypatch):
    trace = hl.worlds.pool([[0.9, 0.3, 0.5], [0.2, 0.8, 0.5]], 30, sequences=2, k=3, seed=4)
    monkeypatch.setattr(measure, "trace_of", lambda setting: trace)
    return trace


def test_token_games_are_those_of_the_decode_run(tiny):
    k = 3
    arrays = delay.run({"kind": "token game", "trace": "", "k": k}, 0)
    losses = hl.feedback.losses(tiny, k=k)
    for i, name in enumerate(measure.SEARCHED):
        run = hl.replay(tiny, name, k=k, token_game=True)
        rounds = np.split(run.committed, np.cumsum(run.sequence_rounds)[:-1])
        for s, committed in enumerate(rounds):
            rows = slice(tiny.offsets[s], tiny.offsets[s + 1] - (k - 1))
            regret = run.expected_loss[rows].sum() - losses[rows].sum(axis=0).min()
            assert arrays["regret"][i, measure.LATE.index("queue"), s] == pytest.approx(regret, abs=1e-9)
            ends = np.cumsum(committed)
            waits = [next(e for e in ends if e > t + k - 1) - t - 1 for t in range(30 - (k - 1))]
            assert arrays["delay"][i, s] == pytest.approx(np.mean(waits))
    assert arrays["plays"].tolist() == [28] * 4
    copies = 2 * k
    assert arrays["guarantee"] == pytest.approx(k / (k + 1) * math.sqrt(copies * 28 * math.log(3) / 2))


def test_modes_of_feedback_are_those_asked_for(tiny):
    arrays = delay.run({"kind": "feedback", "trace": "", "k": 3, "learner": "normalhedge", "replicates": 2}, 0)
    asked = [{}, {"delay_mode": "padded"}, {"feedback": "censored"}, {"granularity": "round"}]
    for row, options in zip(arrays["rounds"], asked, strict=True):
        runs = [hl.replay(tiny, "normalhedge", k=3, replicate=r, **options).sequence_rounds for r in range(2)]
        assert row == pytest.approx(np.mean(runs, axis=0))
    assert arrays["picks"].sum(axis=1) == pytest.approx(1)
    result = Result({}, arrays)
    mats = arrays["tokens"].sum() / arrays["rounds"].sum(axis=1)
    assert delay.difference(result, "censored", "delayed").estimate == pytest.approx(mats[2] - mats[0])


# ------------------------------------------------------------------ planted errors


def test_losses_shown_without_delay_are_found(quick, monkeypatch):
    play = hl.play
    monkeypatch.setattr(hl, "play", lambda losses, learner, **o: play(losses, learner, **(o | {"delay": 0})))
    planted = again(quick, lambda s: s.get("world") == "block" and s["policy"] in asked.TUNED)
    assert verdicts(quick)["adversary"].verdict == HOLDS
    assert verdicts(planted)["adversary"].verdict == FAILS


def test_a_stale_learner_tuned_without_the_delay_is_found(quick, monkeypatch):
    plain = hl.delays.stale_hedge
    monkeypatch.setattr(hl.delays, "stale_hedge", lambda rounds, n, *, delay, **o: plain(rounds, n, **o))
    found = verdicts(again(quick, lambda s: s.get("policy") == "stale hedge"))
    assert found["bounds"].verdict == FAILS
    assert "stale hedge" in found["bounds"].case


def test_one_copy_in_place_of_many_is_found(quick, monkeypatch):
    play = hl.play
    monkeypatch.setattr(hl, "play", lambda losses, learner, **o: play(losses, learner, **(o | {"delay_mode": "queue"})))
    found = verdicts(again(quick, lambda s: s.get("policy", "").startswith("bold")))
    assert found["bounds"].verdict == FAILS
    assert "bold" in found["bounds"].case


def test_the_right_weights_answer_the_question_of_weights(quick, monkeypatch):
    # the effect is that of own weights: told of the weights played, NormalHedge grows as it should
    monkeypatch.setattr(measure, "_own_weights", lambda: "normalhedge")
    found = verdicts(again(quick, lambda s: s.get("policy") == "normalhedge, own weights"))
    assert verdicts(quick)["weights"].verdict == FAILS
    assert found["weights"].verdict == HOLDS


def test_swapped_modes_are_found(quick):
    # censored rounds in the place of padded ones and twice as many: both questions about MAT must see it
    planted = []
    for each in quick:
        arrays = dict(each.arrays)
        if each.setting["kind"] == "feedback":
            arrays["rounds"] = arrays["rounds"] * np.array([1.0, 1.0, 2.0, 2.0])[:, None]
        planted.append(Result(each.setting, arrays))
    assert verdicts(quick)["partial"].verdict != HOLDS
    assert verdicts(Results(planted))["partial"].verdict == HOLDS


def test_figure(quick):
    figure = figure_of.draw(quick)
    assert figure_of.CLAIM == "delay"
    assert [axes.get_title(loc="left")[0] for axes in figure.axes] == list("abcd")
    assert len(figure.axes[0].lines) == 8
    assert all(np.isfinite(line.get_xydata()).all() for line in figure.axes[0].lines)
    figure.canvas.draw()
