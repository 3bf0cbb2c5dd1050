import json

import pytest

from server_bridge.cohorts.explanation import Explanation, Neighbour

LONE = Explanation(3, None, Neighbour(4, 0.1, 0.02), 1.0, 0.0, 0.4, "nothing-shared", "Client 3 is alone.")
PAIRED = Explanation(3, Neighbour(5, 0.9, 0.02), None, 0.9, 0.02, 0.4, "alike", "Clients 3 and 5 drifted alike.")


@pytest.mark.parametrize("explanation", [LONE, PAIRED])
def test_an_explanation_survives_json(explanation: Explanation) -> None:
    assert Explanation.from_json(json.loads(json.dumps(explanation.to_json()))) == explanation


def test_what_is_no_explanation_is_refused() -> None:
    with pytest.raises(KeyError):
        Explanation.from_json({"client": 3})
