"""The allocator's setting, on a process of its own."""

import subprocess
import sys

# Eight threads that each hold memory of their own: with one arena they all take it from the same heap.
_THREADS = """
import ctypes, threading
from edge_agent.cli.allocator import share_one_arena
{call}
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
taken = []
done = threading.Barrier(9)
def take():
    taken.append(libc.malloc(5000))
    done.wait(30)
threads = [threading.Thread(target=take) for _ in range(8)]
[thread.start() for thread in threads]
done.wait(30)
maps = [line.split()[0].split("-") for line in open("/proc/self/maps")]
print(len({{first for first, end in maps for address in taken if int(first, 16) <= address < int(end, 16)}}))
"""


def test_threads_share_one_heap() -> None:
    def heaps(call: str) -> int:
        program = _THREADS.format(call=call)
        return int(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=60).stdout)

    assert heaps("pass") > 1
    assert heaps("share_one_arena()") == 1
