"""Versions that gateways say they trust: above ours, somebody else released, or we were restored from a backup."""

from dataclasses import dataclass, field

from edge_agent.wire.messages.state import State
from server_bridge.releases.drafting import CohortName
from server_bridge.releases.record import ReleaseRecord
from server_bridge.releases.repository import RoleVersions

AHEAD_AT_MOST = 10_000
"""A claim further ahead is not believed: a gateway could burn our counters."""
GATHER_S = 5.0
PAUSE_S = 3600.0
"""Claims are answered by one release at most in this time: a gateway must not make us release for ever."""


@dataclass
class GatewayClaims:
    """Gathers claims until they are answered by a release above them.

    Attributes:
        seen: (version, weights digest) by cohort that some gateway runs and we did not release.
        roles: the highest role versions claimed.
    """

    seen: dict[CohortName, tuple[int, str]] = field(default_factory=dict)
    roles: RoleVersions | None = None
    _due_s: float = 0.0
    _answered_s: float = -PAUSE_S

    def add(self, state: State, latest: ReleaseRecord, now_s: float) -> str | None:
        """Take in a state; what is alarming about it, if anything is.

        Args:
            now_s: monotonic seconds.
        """
        found = self._role_claim(state, latest) or self._weights_claim(state, latest)
        if found is not None and self._due_s == 0.0:
            self._due_s = max(now_s + GATHER_S, self._answered_s + PAUSE_S)
        return found

    def is_due(self, now_s: float) -> bool:
        """Whether it is time to answer."""
        return 0.0 < self._due_s <= now_s

    def take(self, now_s: float) -> tuple[RoleVersions | None, dict[CohortName, tuple[int, str]]]:
        """The claims to answer now; they are forgotten here."""
        taken = self.roles, self.seen
        self.roles, self.seen, self._due_s, self._answered_s = None, {}, 0.0, now_s
        return taken

    def _role_claim(self, state: State, latest: ReleaseRecord) -> str | None:
        trusted, ours = state.trusted, latest.versions
        ahead = trusted.timestamp - ours.timestamp
        forked = ahead == 0 and trusted.map_digest not in (None, latest.map_digest)
        if not forked and not 0 < ahead <= AHEAD_AT_MOST:
            return None
        snapshot = min(trusted.snapshot, ours.snapshot + AHEAD_AT_MOST)
        claimed = RoleVersions(
            root=ours.root,
            targets=ours.targets,
            bundles=ours.bundles,
            cohorts=max(ours.cohorts, snapshot),  # a release raises both, so cohorts is never above snapshot
            snapshot=snapshot,
            timestamp=trusted.timestamp,
        )
        self.roles = claimed if self.roles is None else self.roles.at_least(claimed)
        return f"trusts timestamp version {trusted.timestamp} of {'another map' if forked else 'somebody'}"

    def _weights_claim(self, state: State, latest: ReleaseRecord) -> str | None:
        target = latest.cohort(state.bundle, state.cohort)
        if target is None:
            return None
        ahead = state.weights_version - latest.highest_version(state.bundle, state.cohort)
        same = state.weights_version == target.current.version
        if not 0 < ahead <= AHEAD_AT_MOST and not (same and state.weights != target.current.weights.digest):
            return None
        name = (state.bundle, state.cohort)
        self.seen[name] = max(self.seen.get(name, (0, "")), (state.weights_version, state.weights))
        return f"runs version {state.weights_version} of {state.cohort}, which we did not release"
