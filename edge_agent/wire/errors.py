"""The one error that bytes from outside may raise."""

PROBLEM_CHARS = 500


class WireError(ValueError):
    """Bytes, a topic or a file from outside do not follow the contract: drop and count.

    Args:
        what: the thing that was read (``topic``, ``message event``, ``weights`` ...).
        problem: what is wrong with it, with the offending field named; cut at 500 characters,
            since it may quote what was read.
    """

    def __init__(self, what: str, problem: str) -> None:
        self.what = what
        self.problem = problem[:PROBLEM_CHARS]
        super().__init__(f"{what}: {self.problem}")
