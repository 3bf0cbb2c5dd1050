"""A gateway's own values of a bundle's personal tensors: they are served, trained and kept here, and never sent.

    <directory>/<bundle>/record.json              which values go with which weights; the values of rounds under way
    <directory>/<bundle>/<digest>.safetensors     values, named by their digest

Values are immutable files; one record, replaced in one step, says which of them count. So a power cut leaves the old
or the new, and going back to earlier weights goes back to their values. What is absent, damaged or does not fit is
never served: the bundle's own values take its place.
"""

import threading
from collections.abc import Collection
from pathlib import Path

import structlog

from edge_agent.errors import StorageError, WireError
from edge_agent.link.durable import DISK, FileOperations, make_directory, read_file, write_file
from edge_agent.model.bundle import Bundle
from edge_agent.ota.personal_files import PersonalFiles, has_personal, own_values
from edge_agent.wire.codec import Count, Digest, Message, Name, Table, WireModel, decode, encode
from edge_agent.wire.tensors import Weights

MOST_PAIRS = 8
"""Weights whose values are kept: the four that a pointer names, and as many again."""
_RECORD = "record.json"
_RECORD_CAP_BYTES = 64 * 1024

_log = structlog.get_logger(__name__)


class Pending(WireModel):
    """Values of an adaptation's rounds, which its release will make active.

    ``start``: what round ``round`` began with, so that the same round asked again begins with the same.
    """

    adaptation: Name
    round: Count
    start: Digest | None = None
    values: Digest


class _Record(Message):
    """``pairs``: weights to the values beside them, the oldest first; weights without a pair have the bundle's own."""

    pairs: Table[Digest, Digest] = {}
    pending: Pending | None = None

    @property
    def named(self) -> set[str]:
        """Every file that must stay."""
        rounds = self.pending
        return {*self.pairs.values(), *(() if rounds is None else (rounds.values, *filter(None, [rounds.start])))}


class PersonalStore:
    """Personal values in ``directory``; may be used from any thread.

    Nothing is made before there is something to keep; a bundle without personal tensors has nothing here.
    """

    def __init__(self, directory: Path, *, files: FileOperations = DISK) -> None:
        self._value_files = PersonalFiles(directory, files)
        self._files = files
        self._lock = threading.RLock()

    def beside(self, bundle: Bundle, weights: str) -> Weights:
        """The values that go with weights, by their digest: what serves when these weights do."""
        with self._lock:
            record = self._record(bundle)
            return self._values(bundle, record.pairs.get(weights))

    def at_round_start(self, bundle: Bundle, adaptation: str, number: int, active: str) -> Weights:
        """What a round begins with: where this adaptation's last round ended, else what is active.

        Args:
            number: the round's; one that is asked again begins where it began.
            active: the digest of the weights that serve.
        """
        with self._lock:
            return self._values(bundle, self._start(self._record(bundle), adaptation, number, active))

    def file_beside(self, bundle: Bundle, weights: str) -> Path | None:
        """The file of :meth:`beside`, sound; None: the bundle's own values."""
        with self._lock:
            return self._sound_file(bundle, self._record(bundle).pairs.get(weights))

    def file_at_round_start(self, bundle: Bundle, adaptation: str, number: int, active: str) -> Path | None:
        """The file of :meth:`at_round_start`, sound; None: the bundle's own values."""
        with self._lock:
            return self._sound_file(bundle, self._start(self._record(bundle), adaptation, number, active))

    def keep_round(self, bundle: Bundle, adaptation: str, number: int, active: str, values: Weights) -> None:
        """Keep what a round made of the personal tensors, until the adaptation's release.

        The same again changes nothing.

        Args:
            number, active: as for :meth:`at_round_start`.
            values: all personal tensors of the bundle.

        Raises:
            DataError: a tensor is missing, extra, misshapen or not finite (named); nothing has changed.
            StorageError: the disk refused; nothing has changed.
        """
        if not has_personal(bundle):
            return
        with self._lock:
            record = self._record_to_change(bundle)
            start = self._start(record, adaptation, number, active)
            pending = Pending(
                adaptation=adaptation, round=number, start=start, values=self._value_files.put(bundle, values)
            )
            self._replace(bundle, record.model_copy(update={"pending": pending}))

    def adopt(
        self, bundle: Bundle, weights: str, *, active: str | None, adaptation: str | None, kept: Collection[str] = ()
    ) -> None:
        """Decide which values go with weights that are about to serve for the first time.

        Those of the rounds that made these weights, if this gateway took part; else those that are active. Weights
        that have been served before keep theirs: a revert goes back to the values of then.

        Args:
            weights: the digest of the new weights.
            active: the digest of the weights of this bundle that serve now; none if another bundle serves.
            adaptation: whose rounds made the new weights, as the release says.
            kept: digests of weights that may serve again; their values stay.

        Raises:
            StorageError: the disk refused; nothing has changed.
        """
        if not has_personal(bundle):
            return
        with self._lock:
            record = self._record_to_change(bundle)
            if weights in record.pairs:
                return
            rounds = record.pending
            if rounds is not None and adaptation is not None and rounds.adaptation == adaptation:
                self._pair(bundle, record.model_copy(update={"pending": None}), weights, rounds.values, [active, *kept])
            elif (values := record.pairs.get(active or "")) is not None:
                self._pair(bundle, record, weights, values, kept)

    def give_up(self, bundle: Bundle, weights: str, *, active: str | None) -> bool:
        """Put what is active beside weights that did not do with the values of their rounds.

        Returns:
            Whether that changed anything.

        Raises:
            StorageError: the disk refused; nothing has changed.
        """
        with self._lock:
            record = self._record_to_change(bundle)
            former = record.pairs.get(weights)
            values = record.pairs.get(active or "")
            if former is None or former == values:
                return False
            self._pair(bundle, record, weights, values or self._value_files.put(bundle, own_values(bundle)))
            _log.warning("personal-values-given-up", weights=weights, values=former)
            return True

    def renew(self, bundle: Bundle, weights: str, values: Weights, *, kept: Collection[str] = ()) -> None:
        """Put new values beside weights that serve already, as an adapter between rounds does.

        They count from the next time that these weights are loaded; who calls this swaps the model too. To go back,
        renew with the values of before.

        Args:
            weights: the digest of the weights that serve.
            values: as for :meth:`keep_round`.
            kept: as for :meth:`adopt`.

        Raises:
            DataError, StorageError: as :meth:`keep_round`.
        """
        if not has_personal(bundle):
            return
        with self._lock:
            self._pair(bundle, self._record_to_change(bundle), weights, self._value_files.put(bundle, values), kept)

    def collect(self, bundles: Collection[str]) -> None:
        """Forget the values of all bundles but those of these digests.

        Raises:
            StorageError: the disk refused.
        """
        with self._lock:
            self._value_files.keep_bundles(bundles)

    def _pair(
        self, bundle: Bundle, record: _Record, weights: str, values: str, kept: Collection[str | None] = ()
    ) -> None:
        """Put values beside weights; others that have the bundle's own so far keep these, by name from now on."""
        others = [name for name in kept if name is not None and name not in record.pairs and name != weights]
        own = dict.fromkeys(others, self._value_files.put(bundle, own_values(bundle))) if others else {}
        pairs = {name: value for name, value in record.pairs.items() if name != weights}
        pairs = _bounded({**own, **pairs, weights: values}, {weights, *kept})
        self._replace(bundle, record.model_copy(update={"pairs": pairs}))

    def _start(self, record: _Record, adaptation: str, number: int, active: str) -> str | None:
        rounds = record.pending
        if rounds is None or rounds.adaptation != adaptation:
            return record.pairs.get(active)
        return rounds.values if number > rounds.round else rounds.start

    def _values(self, bundle: Bundle, digest: str | None) -> Weights:
        if not has_personal(bundle):
            return {}
        held = None if digest is None else self._value_files.held(bundle, digest)
        return own_values(bundle) if held is None else held

    def _sound_file(self, bundle: Bundle, digest: str | None) -> Path | None:
        if digest is None or self._value_files.held(bundle, digest) is None:
            return None
        return self._value_files.path(bundle, digest)

    def _record(self, bundle: Bundle) -> _Record:
        """For those who only look: a record that cannot be read counts as none."""
        try:
            return self._record_to_change(bundle)
        except StorageError as error:
            _log.error("personal-record-unreadable", bundle=bundle.digest, problem=error.problem)
            return _Record()

    def _record_to_change(self, bundle: Bundle) -> _Record:
        """A damaged record counts as none.

        Raises:
            StorageError: it cannot be read now; writing another over it would lose what it says.
        """
        path = self._value_files.folder(bundle) / _RECORD
        if not path.exists():
            return _Record()
        payload = read_file(path)
        try:
            return decode(_Record, payload, cap_bytes=_RECORD_CAP_BYTES)
        except WireError as error:
            _log.error("personal-record-lost", bundle=bundle.digest, problem=error.problem)
            return _Record()

    def _replace(self, bundle: Bundle, record: _Record) -> None:
        """The new record first, then what it no longer names goes."""
        folder = self._value_files.folder(bundle)
        make_directory(folder, files=self._files)
        write_file(folder / _RECORD, encode(record), files=self._files)
        self._value_files.keep_only(bundle, {_RECORD, *(f"{digest}.safetensors" for digest in record.named)})


def _bounded(pairs: dict[str, str], kept: Collection[str | None]) -> dict[str, str]:
    """The newest pairs, and of the older ones those that may be needed."""
    spare = [weights for weights in pairs if weights not in kept]
    dropped = set(spare[: max(0, len(pairs) - MOST_PAIRS)])
    return {weights: values for weights, values in pairs.items() if weights not in dropped}
