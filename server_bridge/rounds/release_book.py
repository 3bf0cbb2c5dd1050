"""What rounds need of releases: what is current, and one call at an adaptation's end."""

from collections.abc import Mapping
from typing import Protocol


class Releases(Protocol):
    """The releases in force. Weights named here are blobs of the store."""

    def current(self, bundle: str) -> dict[str, str]:
        """Digest of each cohort's current weights, the root's among them."""
        ...

    def members(self, bundle: str) -> dict[str, str]:
        """Gateways that the membership lists with this bundle, to their cohorts; others are in the root."""
        ...

    def release(
        self,
        bundle: str,
        members: Mapping[str, str],
        weights: Mapping[str, bytes],
        reason: str,
        *,
        adaptation: str | None = None,
    ) -> int:
        """Release membership and the cohorts' new weights in one map; its number.

        Args:
            members: every gateway that is not in the root, to its cohort.
            weights: encoded weights of the cohorts that changed.
            adaptation: whose rounds made them; gateways put their personal values of these rounds beside them.

        Raises:
            RejectedUpdate: the signer's policy refuses.
            TransientError: the broker or the signer is away; nothing is released yet.
        """
        ...


def released_weights(releases: Releases, bundle: str, gateway: str) -> str | None:
    """Digest of the weights that a gateway should run, if a release says so."""
    cohort = releases.members(bundle).get(gateway, "root")
    return releases.current(bundle).get(cohort)
