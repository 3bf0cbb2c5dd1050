"""A file system of its own under a bridge's folder, that fills up or turns read-only while it is in use."""

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from server_bridge.demo.children import Child

DISK_BYTES = 48 * 1024 * 1024
TOO_SMALL_BYTES = 100


class BridgeDisk:
    """An ext4 image, mounted; without the right to that, a limit on the size of what the bridge writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._image = folder.with_name(f"{folder.name}.img")
        folder.mkdir()
        self.mounted = self._may_mount()

    def turn(self, how: str, bridge: Child) -> None:
        """``full`` or ``read-only``, under a running bridge."""
        if not self.mounted:
            resource.prlimit(bridge.process.pid, resource.RLIMIT_FSIZE, (TOO_SMALL_BYTES, resource.RLIM_INFINITY))
        elif how == "full":
            with (self.folder / "ballast").open("wb") as ballast, suppress(OSError):
                while True:
                    os.write(ballast.fileno(), bytes(4096))
        else:
            subprocess.run(["mount", "-o", "remount,abort", str(self.folder)], check=True)

    def mend(self) -> None:
        """Writable again, as after an operator's care; no process has a file open."""
        if self.mounted:
            subprocess.run(["umount", str(self.folder)], check=True)
            subprocess.run(["fsck.ext4", "-p", str(self._image)], capture_output=True, check=False)
            self._mount()
            (self.folder / "ballast").unlink(missing_ok=True)

    def close(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.folder)], check=True)

    def _may_mount(self) -> bool:
        if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
            return False
        with self._image.open("wb") as image:
            image.truncate(DISK_BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-F", str(self._image)], check=True)
        return self._mount() == 0

    def _mount(self) -> int:
        command = ["mount", "-o", "loop", str(self._image), str(self.folder)]
        return subprocess.run(command, capture_output=True, check=False).returncode


@contextmanager
def bridge_disk(folder: Path) -> Iterator[BridgeDisk]:
    made = BridgeDisk(folder)
    try:
        yield made
    finally:
        made.close()
