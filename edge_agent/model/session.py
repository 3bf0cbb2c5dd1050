"""onnxruntime sessions from bytes, with the trainable tensors supplied from outside."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as native

from edge_agent.errors import DataError

RUNTIME_ERRORS: tuple[type[Exception], ...] = (
    RuntimeError,
    UnicodeDecodeError,
    *(kind for kind in vars(native).values() if isinstance(kind, type) and issubclass(kind, Exception)),
)
"""What onnxruntime raises: its exceptions share no base class, their number grows with its versions, and
a run with bound values raises Python's own; so does a message of its own that quotes a damaged graph's name."""

_FATAL_ONLY = 4  # every error is raised as well; nothing is lost by not printing it


class Session:
    """A graph ready to run, and the memory it borrows.

    Args:
        what: how errors name the graph, for example ``infer.onnx``.
        graph: the ONNX file's bytes.
        external: tensors for initialisers whose data is external; copied, since onnxruntime borrows the memory.
        lent: more of them, which nobody ever writes to: not copied, so that sessions can share them.
        threads: threads inside an operator. A count per container must be given: onnxruntime ignores its limits.
        planned: whether onnxruntime plans one block of memory for all intermediate values. That saves a small graph
            5 us a run; a large training graph takes a quarter more memory for it, at no less time (measured).

    Raises:
        DataError: onnxruntime refuses the graph or a tensor.
    """

    def __init__(
        self,
        what: str,
        graph: bytes,
        external: Mapping[str, NDArray[np.float32]],
        *,
        threads: int,
        planned: bool = True,
        lent: Mapping[str, NDArray[np.float32]] = MappingProxyType({}),
    ) -> None:
        self.what = what
        given = {name: np.array(value, order="C") for name, value in external.items()} | dict(lent)
        self._arrays = given  # onnxruntime borrows their memory
        self._borrowed = [ort.OrtValue.ortvalue_from_numpy(value) for value in given.values()]
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.enable_mem_pattern = planned
        options.log_severity_level = _FATAL_ONLY
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if given:
            options.add_external_initializers(list(given), self._borrowed)
        try:
            self.native = ort.InferenceSession(
                graph,
                options,
                providers=["CPUExecutionProvider"],
                enable_fallback=0,  # it would print and try the same again
            )
        except RUNTIME_ERRORS as error:
            raise DataError(
                f"{what} is refused by onnxruntime {ort.__version__}: {first_line(error)}",
                "build the bundle for this version, or upgrade onnxruntime",
            ) from error
        self.inputs: tuple[str, ...] = tuple(value.name for value in self.native.get_inputs())
        self.outputs: tuple[str, ...] = tuple(value.name for value in self.native.get_outputs())

    def run(self, feeds: Mapping[str, NDArray[Any]], outputs: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
        """Outputs by name.

        Args:
            outputs: those wanted, the others are not copied out; all if None.

        Raises:
            DataError: onnxruntime refuses the values.
        """
        wanted = self.outputs if outputs is None else outputs
        return dict(zip(wanted, self.listed(feeds, wanted), strict=True))

    def listed(self, feeds: Mapping[str, NDArray[Any]], wanted: Sequence[str]) -> list[NDArray[Any]]:
        """The outputs that are ``wanted``, in that order.

        Raises:
            DataError: as :meth:`run`.
        """
        try:
            outputs: list[NDArray[Any]] = self.native.run(wanted, feeds)
        except RUNTIME_ERRORS as error:
            raise DataError(f"{self.what} cannot run: {first_line(error)}") from error
        return outputs


def first_line(error: Exception) -> str:
    """The first line of a foreign error, which for onnxruntime says what and where."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
