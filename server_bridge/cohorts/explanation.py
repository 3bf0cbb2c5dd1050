"""Why a client is in its group: the statistic, its neighbours, the rule in words."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

ClientId = int


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A client that another was compared with.

    Attributes:
        client: who.
        similarity: of the two changes: 1 for the same drift, 0 for nothing in common.
        standard_error: of the similarity, same unit.
    """

    client: ClientId
    similarity: float
    standard_error: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """One client's decision.

    Attributes:
        client: whose.
        own: the most similar member of its group; ``None`` for a client by itself.
        other: the most similar client outside its group; ``None`` if there is none.
        similarity: mean similarity with its group's others; 1 for a client by itself.
        standard_error: of that mean, same unit.
        threshold: the similarity at which the decision would have been the other one.
        rule: the name of the rule that decided, stable, for programs.
        sentence: the decision in words, for people.
    """

    client: ClientId
    own: Neighbour | None
    other: Neighbour | None
    similarity: float
    standard_error: float
    threshold: float
    rule: str
    sentence: str

    def to_json(self) -> dict[str, Any]:
        """A JSON object that :meth:`from_json` reads back, keys in order, so that equal ones are equal bytes."""
        return dict(sorted(asdict(self).items()))

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Explanation":
        """The explanation that :meth:`to_json` wrote.

        Raises:
            KeyError, TypeError: it is none.
        """
        neighbours = {
            side: None if document[side] is None else Neighbour(**document[side]) for side in ("own", "other")
        }
        return cls(**{**document, **neighbours})
