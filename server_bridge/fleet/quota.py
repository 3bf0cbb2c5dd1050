"""How many bytes a gateway may send in a minute."""

WINDOW_S = 60.0
BYTES_PER_WINDOW = 8 * 1024 * 1024


class ByteQuota:
    """Counts bytes per gateway in fixed windows of a minute.

    Args:
        limit_bytes: the most a gateway may send in one window.
    """

    def __init__(self, limit_bytes: int = BYTES_PER_WINDOW) -> None:
        self._limit_bytes = limit_bytes
        self._window = -1
        self._used: dict[str, int] = {}

    def admit(self, gateway: str, size_bytes: int, now_s: float) -> bool:
        """Whether a message still fits; it is counted either way. Time is monotonic seconds."""
        window = int(now_s // WINDOW_S)
        if window != self._window:
            self._window = window
            self._used.clear()
        used = self._used.get(gateway, 0) + size_bytes
        self._used[gateway] = used
        return used <= self._limit_bytes
