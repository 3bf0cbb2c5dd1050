"""A bad link: a TCP proxy that is slow, far, lossy, cut or half open, between gateways and a broker."""

import queue
import random
import socket
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

PIECE_BYTES = 512
QUEUED_PIECES = 32
POLL_S = 0.2
_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class LinkFault:
    """What is wrong with a link.

    Attributes:
        rate_bytes_s: of each direction, shared by all connections; 0 for no limit.
        latency_s: one way.
        loss: share of pieces of 512 bytes that are lost; TCP makes a stall of each.
        stall_s: how long such a stall is at the least; up to twice that.
        cut_every_s: every connection is reset this often; 0 for never.
    """

    rate_bytes_s: float = 0.0
    latency_s: float = 0.0
    loss: float = 0.0
    stall_s: float = 1.2
    cut_every_s: float = 0.0


class LinkProxy:
    """Listens on 127.0.0.1 and forwards to a port there.

    ``silent`` set true makes it half open: connections are accepted and kept, and nothing is forwarded;
    those of that time stay dead when it is set false again, as after a router's restart.
    """

    def __init__(self, target_port: int, fault: LinkFault, *, seed: int = 0) -> None:
        self.silent = False
        self.accepted = 0
        self.cuts = 0
        self.bytes_up = 0
        self.bytes_down = 0
        self._target_port = target_port
        self._fault = fault
        self._rng = random.Random(seed)
        self._rates = {"up": _Rate(fault.rate_bytes_s), "down": _Rate(fault.rate_bytes_s)}
        self._pairs: list[_Pair] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._listener.settimeout(POLL_S)
        self.port = int(self._listener.getsockname()[1])
        self._threads = [threading.Thread(target=self._accept, name="proxy", daemon=True)]
        if fault.cut_every_s:
            self._threads.append(threading.Thread(target=self._cut_again_and_again, name="proxy-cuts", daemon=True))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(5.0)
        self._listener.close()
        self.cut()

    def cut(self) -> bool:
        """Reset every connection, at both ends; whether there was any."""
        with self._lock:
            pairs = [pair for pair in self._pairs if not pair.ended.is_set()]
            self._pairs = []
        for pair in pairs:
            pair.reset()
        return bool(pairs)

    def _cut_again_and_again(self) -> None:
        while not self._stopping.wait(self._fault.cut_every_s):
            self.cuts += self.cut()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                near, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                if self._stopping.is_set():  # closed after a patience that a slow machine exceeds
                    return
                raise
            self.accepted += 1
            try:
                far = socket.create_connection(("127.0.0.1", self._target_port), timeout=5.0)
            except OSError:
                near.close()
                continue
            pair = _Pair(near, far)
            with self._lock:
                self._pairs = [*(one for one in self._pairs if not one.ended.is_set()), pair]
            self._pump(pair, near, far, "up")
            self._pump(pair, far, near, "down")

    def _pump(self, pair: "_Pair", source: socket.socket, target: socket.socket, way: str) -> None:
        for end in (source, target):
            end.settimeout(POLL_S)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pieces: queue.Queue[tuple[float, bytes]] = queue.Queue(QUEUED_PIECES)
        threading.Thread(target=self._read, args=(pair, source, pieces, way), daemon=True).start()
        threading.Thread(target=self._write, args=(pair, target, pieces), daemon=True).start()

    def _read(self, pair: "_Pair", source: socket.socket, pieces: "queue.Queue[tuple[float, bytes]]", way: str) -> None:
        late_s = 0.0
        while not pair.ended.is_set():
            if self.silent:
                pair.dead = True
            if pair.dead:
                pair.ended.wait(POLL_S)
                continue
            try:
                piece = source.recv(PIECE_BYTES)
            except TimeoutError:
                continue
            except OSError:
                pair.reset()
                return
            self._rates[way].wait(len(piece))
            due_s = time.monotonic() + self._fault.latency_s + self._stall_s()
            late_s = max(late_s, due_s)
            self._count(way, len(piece))
            pieces.put((late_s, piece))
            if not piece:
                return

    def _write(self, pair: "_Pair", target: socket.socket, pieces: "queue.Queue[tuple[float, bytes]]") -> None:
        while not pair.ended.is_set():
            try:
                due_s, piece = pieces.get(timeout=POLL_S)
            except queue.Empty:
                continue
            pair.ended.wait(max(0.0, due_s - time.monotonic()))
            if pair.dead:
                continue
            if not piece:
                pair.close_one(target)
                return
            if not _send_all(pair, target, piece):
                pair.reset()
                return

    def _stall_s(self) -> float:
        with self._lock:
            lost = self._rng.random() < self._fault.loss
            return self._fault.stall_s * self._rng.uniform(1.0, 2.0) if lost else 0.0

    def _count(self, way: str, size_bytes: int) -> None:
        with self._lock:
            if way == "up":
                self.bytes_up += size_bytes
            else:
                self.bytes_down += size_bytes


def _send_all(pair: "_Pair", target: socket.socket, piece: bytes) -> bool:
    left = piece
    while left and not pair.ended.is_set():
        try:
            left = left[target.send(left) :]
        except TimeoutError:
            continue
        except OSError:
            return False
    return True


class _Rate:
    def __init__(self, bytes_s: float) -> None:
        self._bytes_s = bytes_s
        self._free_s = 0.0
        self._lock = threading.Lock()

    def wait(self, size_bytes: int) -> None:
        if not self._bytes_s:
            return
        with self._lock:
            self._free_s = max(self._free_s, time.monotonic()) + size_bytes / self._bytes_s
            until_s = self._free_s
        time.sleep(max(0.0, until_s - time.monotonic()))


class _Pair:
    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.ended = threading.Event()
        self.dead = False
        self._ends = (near, far)
        self._closed = 0

    def close_one(self, end: socket.socket) -> None:
        with suppress(OSError):
            end.shutdown(socket.SHUT_WR)
        self._closed += 1
        if self._closed == 2:
            self.reset()

    def reset(self) -> None:
        self.ended.set()
        for end in self._ends:
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                end.close()
