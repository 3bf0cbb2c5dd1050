"""The fleet's keys on disk: offline ones, and those that the signer process holds."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.serialization import load_pem_private_key
from securesystemslib.signer import CryptoSigner

from edge_agent.errors import ConfigError
from edge_agent.link.durable import PRIVATE_MODE, make_directory, read_file, write_file

KEY_CAP_BYTES = 16 * 1024
OFFLINE_FOLDER = "offline"
ONLINE_FOLDER = "online"
OFFLINE_ROLES = ("targets", "bundles")
ONLINE_ROLES = ("snapshot", "timestamp", "cohorts")


@dataclass(frozen=True, slots=True)
class OnlineKeys:
    """Keys of the roles that change with every release, and the command key."""

    snapshot: CryptoSigner
    timestamp: CryptoSigner
    cohorts: CryptoSigner
    command: CryptoSigner

    @property
    def command_id(self) -> str:
        """The name of the command key in ``fleet.json``."""
        return command_key_id(public_hex(self.command))

    @classmethod
    def load(cls, directory: Path) -> "OnlineKeys":
        """Read ``online/`` of a keys directory.

        Raises:
            ConfigError: a key is absent or no Ed25519 key.
        """
        folder = directory / ONLINE_FOLDER
        return cls(**{path.stem: _load(path) for path in _online_files(folder)})

    @staticmethod
    def absent(directory: Path) -> list[Path]:
        """The files of a keys directory that ``load`` would miss; none of them is read."""
        return [path for path in _online_files(directory / ONLINE_FOLDER) if not path.is_file()]


@dataclass(frozen=True, slots=True)
class FleetKeys:
    """Every key of a fleet.

    Attributes:
        root: the root role's signers.
        root_threshold: how many of them must sign a root.
        targets: signs ``fleet.json`` and the delegations.
        bundles: signs the bundles' file lists.
        online: what the signer process holds.
    """

    root: Sequence[CryptoSigner]
    root_threshold: int
    targets: CryptoSigner
    bundles: CryptoSigner
    online: OnlineKeys

    @classmethod
    def generate(cls, *, root_keys: int = 1, root_threshold: int = 1) -> "FleetKeys":
        """Fresh keys in memory.

        Raises:
            ConfigError: the threshold is not within 1..root_keys.
        """
        if not 1 <= root_threshold <= root_keys:
            raise ConfigError(
                f"root_threshold is {root_threshold} with {root_keys} root keys",
                "take 1 <= root_threshold <= root_keys",
            )
        make = CryptoSigner.generate_ed25519
        online = OnlineKeys(make(), make(), make(), make())
        return cls(tuple(make() for _ in range(root_keys)), root_threshold, make(), make(), online)

    @classmethod
    def create(cls, directory: Path, *, root_keys: int = 1, root_threshold: int = 1) -> "FleetKeys":
        """Fresh keys, written to ``directory`` readable by their owner only.

        Raises:
            ConfigError: keys are there already, or the threshold is impossible.
            StorageError: the disk refused.
        """
        if directory.is_dir() and any(directory.rglob("*.pem")):
            raise ConfigError(f"{directory} already holds keys", "choose another directory, or remove it knowingly")
        keys = cls.generate(root_keys=root_keys, root_threshold=root_threshold)
        for folder in (directory / OFFLINE_FOLDER, directory / ONLINE_FOLDER):
            make_directory(folder)
            folder.chmod(0o700)
        for name, signer in keys._files().items():
            write_file(directory / name, signer.private_bytes, mode=PRIVATE_MODE)
        write_file(directory / OFFLINE_FOLDER / "root.threshold", f"{root_threshold}\n".encode())
        return keys

    @classmethod
    def load(cls, directory: Path) -> "FleetKeys":
        """Read a keys directory, offline keys included.

        Raises:
            ConfigError: a key is absent or no Ed25519 key.
            StorageError: a file cannot be read.
        """
        offline = directory / OFFLINE_FOLDER
        root = tuple(_load(path) for path in sorted(offline.glob("root-*.pem")))
        if not root:
            raise ConfigError(
                f"no root key in {offline}", "bring the offline keys back, or run on the online ones only"
            )
        try:
            threshold = int(read_file(offline / "root.threshold", cap_bytes=KEY_CAP_BYTES))
        except ValueError:
            raise ConfigError(f"{offline / 'root.threshold'} holds no number") from None
        return cls(
            root, threshold, _load(offline / "targets.pem"), _load(offline / "bundles.pem"), OnlineKeys.load(directory)
        )

    def _files(self) -> dict[str, CryptoSigner]:
        files = {f"{OFFLINE_FOLDER}/root-{number}.pem": signer for number, signer in enumerate(self.root, 1)}
        files |= {f"{OFFLINE_FOLDER}/{name}.pem": getattr(self, name) for name in OFFLINE_ROLES}
        files |= {f"{ONLINE_FOLDER}/{name}.pem": getattr(self.online, name) for name in (*ONLINE_ROLES, "command")}
        return files


def public_hex(signer: CryptoSigner) -> str:
    """An Ed25519 public key as 64 hexadecimal digits."""
    return str(signer.public_key.keyval["public"])


def command_key_id(public: str) -> str:
    """The name of a command key: derived from its public bytes."""
    return "command-" + hashlib.sha256(bytes.fromhex(public)).hexdigest()[:16]


def _online_files(folder: Path) -> list[Path]:
    return [folder / f"{name}.pem" for name in (*ONLINE_ROLES, "command")]


def _load(path: Path) -> CryptoSigner:
    if not path.is_file():
        raise ConfigError(f"key {path} is absent", "run `server-bridge init`, or bring the keys back")
    try:
        private = load_pem_private_key(read_file(path, cap_bytes=KEY_CAP_BYTES), password=None)
        signer = CryptoSigner(private)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"key {path} cannot be used: {error}", "bring the key back as it was made") from None
    if signer.public_key.keytype != "ed25519":
        raise ConfigError(f"key {path} is {signer.public_key.keytype}, ed25519 is needed")
    return signer
