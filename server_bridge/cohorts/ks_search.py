"""Where two distribution functions are furthest apart: exact, and nowhere looked at closer than needed."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from server_bridge.cohorts.ordered_keys import Keys

STRETCH = 8192  # order statistics between two that are looked up first
Counts = NDArray[np.int64]
Places = NDArray[np.intp]


@dataclass(slots=True)
class Excess:
    """The largest excess found so far of each distribution function over the other, times both sizes."""

    client: int = 0
    reference: int = 0

    def take(self, client: Counts, reference: Counts) -> None:
        """Excesses that are attained."""
        self.client = max(self.client, int(client.max(initial=0)))
        self.reference = max(self.reference, int(reference.max(initial=0)))

    @property
    def wanted(self) -> tuple[int, int]:
        """The smallest client's and the smallest reference's excess that leads to another result."""
        return max(self.client + 1, self.reference), max(self.client, self.reference) + 1


def largest_excess(client: Keys, reference: Keys) -> Excess:
    """The largest excess of each distribution function, the larger of the two exactly.

    Args:
        client: (n,) ascending, n >= 1.
        reference: (m,) ascending, m >= 1.

    Returns:
        Excesses times n m. The smaller may be less than it is where it does not matter.

    Cost: O(n) comparisons of what lies side by side for samples of one size, and some thousands
    of binary searches; for samples of different sizes one for each of n where they hardly differ.
    Memory: some 100 kB.
    """
    return _Search(client, reference).run()


@dataclass(slots=True)
class _Search:
    client: Keys
    reference: Keys
    excess: Excess = field(default_factory=Excess)

    def run(self) -> Excess:
        ends = np.append(np.arange(0, self.client.size - 1, STRETCH), self.client.size - 1)
        client, reference = self._look_up(ends)
        for number in np.argsort(-np.maximum(client, reference)):  # what is found early spares more
            inner = int(ends[number]) + 1, int(ends[number + 1])
            wanted = self.excess.wanted
            if (client[number] >= wanted[0] or reference[number] >= wanted[1]) and self._attained(*inner):
                self._look_up(np.arange(*inner))
        return self.excess

    def _look_up(self, places: Places) -> tuple[Counts, Counts]:
        """Take what the client's values at ascending places (r,) attain; bounds (r - 1,) on those between."""
        m, n = self.reference.size, self.client.size
        found = self.client[places]
        right = self.reference.searchsorted(found, "right")
        left = right.copy()
        held = self.reference[right - 1] == found  # -1 is the largest: held only if right is not 0
        left[held] = self.reference.searchsorted(found[held], "left")
        self.excess.take((places + 1) * m - right * n, left * n - places * m)
        return places[1:] * m - right[:-1] * n, left[1:] * n - (places[:-1] + 1) * m

    def _attained(self, begin: int, end: int) -> bool:
        """Whether values from begin to before end attain what is wanted; of different sizes: perhaps.

        With as many values in both samples an excess is a number of places k: the i-th value
        (from 0) of the client is below the reference's of k - 1 places before, or above that of
        k - 1 places behind.
        """
        size = self.client.size
        if size != self.reference.size:
            return True
        before, behind = (-(-scaled // size) - 1 for scaled in self.excess.wanted)
        first, last = max(begin, before), min(end, size - behind)
        below = self.client[first:end] < self.reference[first - before : max(end, first) - before]
        above = self.client[begin:last] > self.reference[begin + behind : max(last, begin) + behind]
        return bool(below.any() or above.any())
