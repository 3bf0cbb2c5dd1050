"""How the time of cohorting grows with clients and parameters, and whether the peer's goes by clients."""

from collections.abc import Sequence

from tests.benchmarks.cohorting_inputs import Form, fleet
from tests.benchmarks.cohorting_results import Results, Size, case_name
from tests.benchmarks.cohorting_ways import cpu_s, ours, peer
from tests.benchmarks.growth_chart import exponent, growth_chart

PARAMETERS = 100_000  # of each client where clients grow
CLIENTS = 10  # where parameters grow
GROWTH_CLIENTS: tuple[int, ...] = (10, 32, 100, 316, 1000)
GROWTH_PARAMETERS: tuple[int, ...] = (10_000, 100_000, 1_000_000, 11_000_000)
PEER_VALUES = 32_000_000  # the peer, on Gaussian weights, goes on to here: half a minute
PEER = "fed-clma, gaussian"
NOTES = {
    "clients": f"clients, of {PARAMETERS:,} parameters each",
    "parameters": f"parameters of each of {CLIENTS} clients",
}
Points = list[tuple[float, float]]


def growth(results: Results, forms: Sequence[Form], *, quick: bool) -> None:
    """Times by clients and by parameters: a chart and a fitted exponent for each."""
    sizes: dict[str, dict[int, Size]] = {
        "clients": {clients: (clients, PARAMETERS) for clients in GROWTH_CLIENTS},
        "parameters": {parameters: (CLIENTS, parameters) for parameters in GROWTH_PARAMETERS},
    }
    for axis, grown in sizes.items():
        chosen = dict(list(grown.items())[:2]) if quick else grown
        curves: dict[str, Points] = {
            f"ours, {form}": [(n, _best_s(form, size)) for n, size in chosen.items()] for form in forms
        }
        curves[PEER] = [(n, _peer_s(size)) for n, size in chosen.items() if size[0] * size[1] <= PEER_VALUES]
        fitted = {name: exponent(points) for name, points in curves.items()}
        ends = {name: exponent(points[-2:]) for name, points in curves.items()}
        print(
            f"  growth with {axis}: " + ", ".join(f"{n} ^{fitted[n]:.2f} (end ^{ends[n]:.2f})" for n in fitted),
            flush=True,
        )
        found = {"note": NOTES[axis], "points": curves, "exponents": fitted, "exponents_at_the_end": ends}
        results.keep("growth", axis, found)
        results.picture(f"cohorting-{axis}.svg", growth_chart(f"Cohorting, CPU time by {axis}", NOTES[axis], curves))


def peer_by_clients(results: Results, size: Size, counts: Sequence[int]) -> None:
    """The peer on the first clients of a fleet, and on more of them: what scaling up from a few would say.

    Args:
        size: the whole fleet.
        counts: of how many clients, ascending.
    """
    matrix, reference = fleet("gaussian", *size)
    case = case_name("gaussian", size)
    measured: dict[str, float] = {}
    for count in counts:
        taken_s = measured[str(count)] = cpu_s(peer(matrix[:count], reference))
        print(
            f"  {case}: fed-clma on {count} clients {taken_s:.2f} s, {taken_s / count:.3f} s a client, "
            f"for {size[0]} it would be {taken_s / count * size[0]:.1f} s",
            flush=True,
        )
        results.keep("peer by clients", case, measured)


def _best_s(form: Form, size: Size) -> float:
    work = ours(*fleet(form, *size))
    return min(cpu_s(work) for _ in range(3))


def _peer_s(size: Size) -> float:
    return cpu_s(peer(*fleet("gaussian", *size)))
