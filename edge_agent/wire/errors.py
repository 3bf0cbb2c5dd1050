"""The one error that bytes from outside may raise."""


class WireError(ValueError):
    """Bytes, a topic or a file from outside do not follow the contract: drop and count.

    Args:
        what: the thing that was read (``topic``, ``message event``, ``weights`` ...).
        problem: what is wrong with it, with the offending field named.
    """

    def __init__(self, what: str, problem: str) -> None:
        self.what = what
        self.problem = problem
        super().__init__(f"{what}: {problem}")
