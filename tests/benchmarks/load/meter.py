"""What processes and the kernel hold for a broker, sampled while a load runs."""

import threading
from dataclasses import dataclass, field
from pathlib import Path

SAMPLE_S = 0.5


@dataclass
class Peaks:
    """The most seen, in bytes."""

    bridge: int = 0
    broker: int = 0
    kernel_send_queues: int = 0
    kernel_receive_queues: int = 0
    broker_and_kernel: int = 0


@dataclass
class Meter:
    """A thread that reads /proc; ``peaks`` of each named phase.

    Args:
        bridge_pid: with its children (the signer).
        broker_pid: of mosquitto.
        port: the broker's: queues of all sockets on it count, on both sides.
    """

    bridge_pid: int
    broker_pid: int
    port: int
    peaks: dict[str, Peaks] = field(default_factory=dict)
    _phase: str = "start"
    _stopping: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="meter", daemon=True)
        self._thread.start()

    def phase(self, name: str) -> None:
        """What follows counts for ``name``."""
        self._sample()
        self._phase = name

    def stop(self) -> None:
        """End."""
        self._stopping.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        while not self._stopping.wait(SAMPLE_S):
            self._sample()

    def _sample(self) -> None:
        peaks = self.peaks.setdefault(self._phase, Peaks())
        bridge = sum(resident_bytes(pid) for pid in (self.bridge_pid, *children_of(self.bridge_pid)))
        broker = resident_bytes(self.broker_pid)
        send, receive = socket_queues(self.port)
        peaks.bridge = max(peaks.bridge, bridge)
        peaks.broker = max(peaks.broker, broker)
        peaks.kernel_send_queues = max(peaks.kernel_send_queues, send)
        peaks.kernel_receive_queues = max(peaks.kernel_receive_queues, receive)
        peaks.broker_and_kernel = max(peaks.broker_and_kernel, broker + send + receive)


def resident_bytes(pid: int) -> int:
    """Resident memory of a process; 0 if it has ended."""
    return _status_bytes(pid, "VmRSS:")


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / 100


def children_of(pid: int) -> list[int]:
    """Child processes."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []


def socket_queues(port: int) -> tuple[int, int]:
    """(send, receive) queue bytes in the kernel of all TCP sockets on a port, at either end."""
    mark = f":{port:04X}"
    send = receive = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "01" and (fields[1].endswith(mark) or fields[2].endswith(mark)):
            queued, unread = fields[4].split(":")
            send, receive = send + int(queued, 16), receive + int(unread, 16)
    return send, receive


def _status_bytes(pid: int, key: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key)), 0)
