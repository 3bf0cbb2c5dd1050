"""Whether a drifted client may take a known cohort's model as it is: losses on its own samples decide."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from server_bridge.cohorts.membership import ROOT, CohortId

CANDIDATE_DELTA = 0.1
Verdict = Literal["moves", "stays", "unknown"]


@dataclass(frozen=True, slots=True)
class CandidateRule:
    """When a known model is good enough for a client that drifted.

    A model is good enough if its loss on the client's samples since the drift is above its level
    (what it has on its own members' data) by at most the largest of ``delta``, ``errors`` standard
    errors, and ``share`` of the rise, which is how far the client's own model is above that level:
    a level that was taken on data that the model has trained on is too low, and yet a model that
    takes away nearly all of the rise is the right one. The best is the one with the lowest loss.
    If it is good enough, the client moves to it, or stays if it is its own: the flag was false.
    Else the drift is unknown. A flag is not lightly overruled: to stay, one standard error is
    forgiven, and none of the rise.

    Attributes:
        delta: what a known model may lose on a client (unit: the loss's).
        share: of the rise that may be left.
        errors: standard errors.
        least: samples; on fewer no choice is made.
        chance: the loss of a model that knows nothing, ln(classes) for cross-entropy; infinite if not known.

    Source: Jothimurugesan et al. 2023, FedDrift, for the comparison with delta; the errors are ours.
    """

    delta: float = CANDIDATE_DELTA
    share: float = 0.25
    errors: float = 2.0
    least: int = 5
    chance: float = math.inf


@dataclass(frozen=True, slots=True)
class Score:
    """A model's mean loss on a client's samples, how many these were, and the mean's standard error."""

    loss: float
    samples: float
    error: float

    @classmethod
    def guessed(cls, loss: float, samples: float) -> "Score":
        """Without a known error: losses scatter about as much as they are large (measured: 0.8 to 3 times)."""
        return cls(loss, samples, abs(loss) / math.sqrt(max(samples, 1.0)))


@dataclass(frozen=True, slots=True)
class Choice:
    """What a client's evaluations say.

    Attributes:
        verdict: it ``moves`` to the best, ``stays`` where it is, or its drift is ``unknown``.
        best: the cohort whose model did best.
        own: the client's own cohort.
        scores: all evaluations.
        level: what the best had to come near to; NaN if not known.
        threshold: the greatest loss that was good enough; NaN if not known.
    """

    verdict: Verdict
    best: CohortId
    own: CohortId
    scores: Mapping[CohortId, Score]
    level: float
    threshold: float

    @property
    def sentence(self) -> str:
        """The decision in words."""
        best, own = self.scores[self.best], self.scores[self.own]
        words = f"on its {best.samples:.0f} samples since the drift the model of {self.best} has a loss of"
        known = f"at most {self.threshold:.2f} is good enough" if math.isfinite(self.threshold) else "no level is known"
        return f"{words} {best.loss:.2f}, its own {own.loss:.2f}; {known}"

    def to_json(self) -> dict[str, Any]:
        """As it is kept with the moves."""
        return {
            "rule": "evaluated",
            "best": self.best,
            "losses": {cohort: score.loss for cohort, score in self.scores.items()},
            "samples": self.scores[self.best].samples,
            "level": self.level,
            "threshold": self.threshold,
            "sentence": self.sentence,
        }


def choose(
    rule: CandidateRule, own: CohortId, scores: Mapping[CohortId, Score], levels: Mapping[CohortId, float]
) -> Choice:
    """Judge one client's evaluations.

    Args:
        rule: see there.
        own: the client's cohort; among the scores.
        scores: by cohort.
        levels: cohort to its model's loss on its own members' data, where known.
    """
    best = min(scores, key=lambda cohort: (scores[cohort].loss, cohort != own))
    limit = highest_loss(rule, scores[best], scores[own], levels.get(best, math.nan))
    verdict: Verdict = "unknown"
    if min(scores[best].samples, scores[own].samples) >= rule.least and scores[best].loss <= limit:
        verdict = "stays" if best == own else "moves"
    return Choice(verdict, best, own, scores, levels.get(best, math.nan), limit)


def best_start(rule: CandidateRule, choices: Sequence[Choice]) -> CohortId:
    """The cohort from whose model clients that leave one cohort for an unknown drift should train: theirs, or another.

    One for all of them: what they learn is compared as changes from one base. Another's only if its loss, over
    all their samples, is the lowest and clearly below their own model's: by the error of the difference. Where all
    are above ``chance``, losses tell how sure models are and not what they know; then it is the root's, which has
    been taught the fewest drifts: of a net that was taught one after the other few units still respond, and it learns
    the next one slowly (docs/benchmarks.md, CIFAR-10). If its loss is not known of all of them, it is their own.

    Args:
        rule: on fewer samples than its ``least`` a client's scores do not count.
        choices: of clients of one cohort, at least one.
    """
    own = choices[0].own
    told = [choice.scores for choice in choices if choice.scores[own].samples >= rule.least]
    if not told:
        return own
    pooled = {c: _pooled([scores[c] for scores in told]) for c in set(told[0]).intersection(*told[1:])}
    best = min(pooled, key=lambda cohort: (pooled[cohort].loss, cohort))
    if pooled[best].loss > rule.chance:
        return ROOT if ROOT in pooled else own
    clearly = pooled[own].loss - pooled[best].loss > math.hypot(pooled[own].error, pooled[best].error)
    return best if clearly else own


def _pooled(scores: Sequence[Score]) -> Score:
    samples = sum(score.samples for score in scores)
    loss = sum(score.loss * score.samples for score in scores) / samples
    return Score(loss, samples, math.hypot(*(score.error * score.samples for score in scores)) / samples)


def highest_loss(rule: CandidateRule, score: Score, own: Score, level: float) -> float:
    """The greatest loss of a model that is good enough.

    Args:
        rule: see there.
        score: the model's.
        own: the client's own model's; the same object if that is meant.
        level: what the model has on its own members' data; NaN if that is not known.
    """
    if score is own:
        return level + max(rule.delta, own.error)
    return level + max(rule.delta, rule.errors * score.error, rule.share * (own.loss - level))
