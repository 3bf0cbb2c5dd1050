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
    done.wait(10)
threads = [threading.Thread(target=take) for _ in range(8)]
[thread.start() for thread in threads]
done.wait(10)
print(len({{address // 2**26 for address in taken}}))
"""


def test_threads_share_one_heap() -> None:
    def heaps(call: str) -> int:
        program = _THREADS.format(call=call)
        return int(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=30).stdout)

    assert heaps("pass") > 1
    assert heaps("share_one_arena()") == 1
