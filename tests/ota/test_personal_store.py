from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from edge_agent.errors import DataError, StorageError
from edge_agent.link.durable import FileOperations
from edge_agent.model.bundle import Bundle
from edge_agent.ota.personal_store import MOST_PAIRS, PersonalStore
from edge_agent.wire.tensors import Weights
from tests.power_cut import Power, at_every_step, until_the_cut
from tests.training.personal_bundle import personal_bundle
from tests.training.tiny_bundle import CLASSES, tiny_bundle


def digest(number: int) -> str:
    return f"{number:064x}"


def values(number: float) -> Weights:
    return {"b": np.full(CLASSES, number, np.float32)}


def number_of(found: Weights) -> float:
    assert set(found) == {"b"}
    return float(found["b"][0])


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return personal_bundle(tmp_path_factory.mktemp("bundle") / "personal")


@pytest.fixture
def store(tmp_path: Path) -> PersonalStore:
    return PersonalStore(tmp_path / "personal")


def test_every_weights_begin_with_the_bundles_own_values_and_nothing_is_written(
    store: PersonalStore, bundle: Bundle, tmp_path: Path
) -> None:
    assert number_of(store.beside(bundle, digest(1))) == 0
    assert number_of(store.at_round_start(bundle, "a1", 1, digest(1))) == 0
    store.adopt(bundle, digest(2), active=digest(1), adaptation="a1")
    assert not (tmp_path / "personal").exists()


def test_a_bundle_without_personal_tensors_has_none(store: PersonalStore, tmp_path: Path) -> None:
    plain = tiny_bundle(tmp_path / "plain")
    assert store.beside(plain, digest(1)) == {}
    assert store.at_round_start(plain, "a1", 1, digest(1)) == {}
    store.keep_round(plain, "a1", 1, digest(1), {})
    store.adopt(plain, digest(2), active=digest(1), adaptation="a1")
    store.renew(plain, digest(2), {})
    assert not (tmp_path / "personal").exists()


def test_a_round_goes_on_where_the_round_before_ended_and_serves_nothing_yet(
    store: PersonalStore, bundle: Bundle
) -> None:
    store.keep_round(bundle, "a1", 1, digest(1), values(1))
    assert number_of(store.at_round_start(bundle, "a1", 2, digest(1))) == 1
    assert number_of(store.beside(bundle, digest(1))) == 0


def test_a_round_asked_again_begins_where_it_began(store: PersonalStore, bundle: Bundle) -> None:
    store.keep_round(bundle, "a1", 1, digest(1), values(1))
    store.keep_round(bundle, "a1", 2, digest(1), values(2))
    assert number_of(store.at_round_start(bundle, "a1", 2, digest(1))) == 1
    store.keep_round(bundle, "a1", 2, digest(1), values(2))
    assert number_of(store.at_round_start(bundle, "a1", 2, digest(1))) == 1
    assert number_of(store.at_round_start(bundle, "a1", 3, digest(1))) == 2


def test_another_adaptation_begins_with_what_is_active(store: PersonalStore, bundle: Bundle) -> None:
    store.keep_round(bundle, "a1", 1, digest(1), values(1))
    assert number_of(store.at_round_start(bundle, "a2", 1, digest(1))) == 0


def test_a_release_takes_the_values_of_its_own_adaptation_only(store: PersonalStore, bundle: Bundle) -> None:
    store.keep_round(bundle, "a1", 1, digest(1), values(1))
    store.adopt(bundle, digest(2), active=digest(1), adaptation="a2")
    assert number_of(store.beside(bundle, digest(2))) == 0
    store.adopt(bundle, digest(3), active=digest(1), adaptation=None)
    assert number_of(store.beside(bundle, digest(3))) == 0
    store.adopt(bundle, digest(4), active=digest(1), adaptation="a1")
    assert number_of(store.beside(bundle, digest(4))) == 1


def test_a_revert_goes_back_to_the_values_of_then_also_to_the_bundles_own(store: PersonalStore, bundle: Bundle) -> None:
    for number in (1, 2):
        store.keep_round(bundle, f"a{number}", 1, digest(number), values(number))
        store.adopt(bundle, digest(number + 1), active=digest(number), adaptation=f"a{number}", kept=[digest(1)])
    for back in (1, 2, 3):
        store.adopt(bundle, digest(back), active=digest(3), adaptation=None)
        assert number_of(store.beside(bundle, digest(back))) == back - 1


def test_a_gateway_that_took_no_part_keeps_what_it_has(store: PersonalStore, bundle: Bundle) -> None:
    store.renew(bundle, digest(1), values(5))
    store.adopt(bundle, digest(2), active=digest(1), adaptation="a1")
    assert number_of(store.beside(bundle, digest(2))) == 5


def test_values_that_do_not_do_are_given_up_for_the_active_ones(store: PersonalStore, bundle: Bundle) -> None:
    store.renew(bundle, digest(1), values(5))
    assert not store.give_up(bundle, digest(2), active=digest(1))
    store.keep_round(bundle, "a1", 1, digest(1), values(1e38))
    store.adopt(bundle, digest(2), active=digest(1), adaptation="a1")
    assert store.give_up(bundle, digest(2), active=digest(1))
    assert number_of(store.beside(bundle, digest(2))) == 5
    assert not store.give_up(bundle, digest(2), active=digest(1))


@pytest.mark.parametrize(
    ("unfit", "named"),
    [
        ({"b": np.array([0, np.nan, 0], np.float32)}, "'b' is not finite"),
        ({"b": np.array([0, np.inf, 0], np.float32)}, "'b' is not finite"),
        ({"b": np.zeros(2, np.float32)}, r"shape \[2\]"),
        ({}, "missing tensor 'b'"),
        ({"b": np.zeros(CLASSES, np.float32), "w": np.zeros(1, np.float32)}, "extra tensor 'w'"),
    ],
)
def test_unfit_values_never_get_in(store: PersonalStore, bundle: Bundle, unfit: Weights, named: str) -> None:
    with pytest.raises(DataError, match=named):
        store.keep_round(bundle, "a1", 1, digest(1), unfit)
    with pytest.raises(DataError, match=named):
        store.renew(bundle, digest(1), unfit)
    assert number_of(store.beside(bundle, digest(1))) == 0
    assert number_of(store.at_round_start(bundle, "a1", 2, digest(1))) == 0


@pytest.mark.parametrize("damage", [b"", b"\0" * 200, b"{}", None], ids=["empty", "zeros", "json", "gone"])
@pytest.mark.parametrize("what", ["record.json", "*.safetensors"])
def test_damage_costs_the_values_and_not_the_service(
    store: PersonalStore, bundle: Bundle, tmp_path: Path, what: str, damage: bytes | None
) -> None:
    store.renew(bundle, digest(1), values(5))
    (path,) = (tmp_path / "personal" / bundle.digest).glob(what)
    path.unlink() if damage is None else path.write_bytes(damage)
    assert number_of(store.beside(bundle, digest(1))) == 0
    store.renew(bundle, digest(1), values(5))
    assert number_of(store.beside(bundle, digest(1))) == 5


def test_only_so_many_values_stay_and_those_that_may_serve_again_among_them(
    store: PersonalStore, bundle: Bundle, tmp_path: Path
) -> None:
    for number in range(1, 3 * MOST_PAIRS):
        store.keep_round(bundle, f"a{number}", 1, digest(number), values(number))
        store.adopt(bundle, digest(number + 1), active=digest(number), adaptation=f"a{number}", kept=[digest(2)])
    assert number_of(store.beside(bundle, digest(2))) == 1
    assert len(list((tmp_path / "personal" / bundle.digest).iterdir())) <= MOST_PAIRS + 2


def test_a_record_that_cannot_be_read_now_is_not_written_over(
    store: PersonalStore, bundle: Bundle, tmp_path: Path
) -> None:
    store.renew(bundle, digest(1), values(5))
    record = tmp_path / "personal" / bundle.digest / "record.json"
    aside = record.rename(record.with_name("aside"))
    record.mkdir()
    assert number_of(store.beside(bundle, digest(1))) == 0
    for change in (
        lambda: store.keep_round(bundle, "a1", 1, digest(1), values(6)),
        lambda: store.adopt(bundle, digest(2), active=digest(1), adaptation="a1"),
        lambda: store.renew(bundle, digest(1), values(6)),
        lambda: store.give_up(bundle, digest(1), active=None),
    ):
        with pytest.raises(StorageError):
            change()
    record.rmdir()
    aside.rename(record)
    assert number_of(store.beside(bundle, digest(1))) == 5


def test_values_go_with_their_bundle(store: PersonalStore, bundle: Bundle, tmp_path: Path) -> None:
    store.collect([])
    store.renew(bundle, digest(1), values(5))
    store.collect([bundle.digest])
    assert number_of(store.beside(bundle, digest(1))) == 5
    store.collect([digest(9)])
    assert list((tmp_path / "personal").iterdir()) == []
    assert number_of(store.beside(bundle, digest(1))) == 0


def test_nobody_else_on_the_machine_reads_them(store: PersonalStore, bundle: Bundle, tmp_path: Path) -> None:
    store.renew(bundle, digest(1), values(5))
    (path,) = (tmp_path / "personal" / bundle.digest).glob("*.safetensors")
    assert path.stat().st_mode & 0o077 == 0


class _FullDisk(FileOperations):
    def write_at(self, descriptor: int, data: bytes | memoryview, offset: int) -> None:
        raise OSError(28, "No space left on device")


def test_a_full_disk_leaves_what_was(store: PersonalStore, bundle: Bundle, tmp_path: Path) -> None:
    store.renew(bundle, digest(1), values(5))
    full = PersonalStore(tmp_path / "personal", files=_FullDisk())
    with pytest.raises(StorageError):
        full.renew(bundle, digest(1), values(6))
    with pytest.raises(StorageError):
        full.keep_round(bundle, "a1", 1, digest(1), values(6))
    assert number_of(store.beside(bundle, digest(1))) == 5


def test_a_power_cut_at_any_step_leaves_the_old_values_or_the_new(bundle: Bundle, tmp_path: Path) -> None:
    def act(folder: Path, k: int) -> Power:
        folder.mkdir()
        before = PersonalStore(folder / "personal")
        before.renew(bundle, digest(1), values(5))
        with until_the_cut(k, folder) as power:
            cut = PersonalStore(folder / "personal")
            cut.keep_round(bundle, "a1", 1, digest(1), values(6))
            cut.adopt(bundle, digest(2), active=digest(1), adaptation="a1", kept=[digest(1)])
        after = PersonalStore(folder / "personal")
        assert number_of(after.beside(bundle, digest(1))) == 5
        after.adopt(bundle, digest(2), active=digest(1), adaptation="a1", kept=[digest(1)])
        assert number_of(after.beside(bundle, digest(2))) in (5, 6)
        assert number_of(after.beside(bundle, digest(2))) == 6 or power.is_out
        assert number_of(after.beside(bundle, digest(1))) == 5
        return power

    assert at_every_step(act, tmp_path) > 8


class Machine(RuleBasedStateMachine):
    """Releases, rounds, reverts and restarts in any order, against a model in memory."""

    folder: Path
    personal: Bundle

    def __init__(self) -> None:
        super().__init__()
        self.own = self.folder / str(np.random.default_rng().integers(2**62))
        self.store = PersonalStore(self.own)
        self.served = {digest(1): 0.0}
        self.active, self.newest, self.adaptation, self.round = digest(1), 1, 0, 0
        self.pending: tuple[int, float] | None = None

    @rule(value=st.floats(-10, 10, width=32))
    def a_round(self, value: float) -> None:
        self.round += 1
        start = self.store.at_round_start(self.personal, f"a{self.adaptation}", self.round, self.active)
        mine = self.pending is not None and self.pending[0] == self.adaptation
        assert number_of(start) == (self.pending[1] if mine and self.pending else self.served[self.active])
        self.store.keep_round(self.personal, f"a{self.adaptation}", self.round, self.active, values(value))
        self.pending = (self.adaptation, value)

    @rule(released=st.booleans())
    def an_adaptation_ends(self, released: bool) -> None:
        if released:
            self.newest += 1
            fits = self.pending is not None and self.pending[0] == self.adaptation
            self._activate(digest(self.newest), f"a{self.adaptation}")
            self.served.setdefault(self.active, self.served[self.before])
            if fits and self.pending is not None:
                self.served[self.active], self.pending = self.pending[1], None
        self.adaptation, self.round = self.adaptation + 1, 0

    @rule()
    def a_revert(self) -> None:
        self._activate(self.before, None)

    @rule()
    def a_restart(self) -> None:
        self.store = PersonalStore(self.own)

    before = digest(1)

    def _activate(self, weights: str, adaptation: str | None) -> None:
        self.store.adopt(
            self.personal, weights, active=self.active, adaptation=adaptation, kept=[self.active, self.before]
        )
        if weights != self.active:
            self.before, self.active = self.active, weights

    @invariant()
    def what_serves_is_what_was_put_beside_it(self) -> None:
        for weights in (self.active, self.before):
            assert number_of(self.store.beside(self.personal, weights)) == self.served[weights]


def test_releases_rounds_reverts_and_restarts_in_any_order(bundle: Bundle, tmp_path: Path) -> None:
    Machine.folder, Machine.personal = tmp_path, bundle
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=30,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
