"""Settings files in TOML: reading, the broker's section, and errors that name key, value and fix."""

import difflib
import tomllib
import typing
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from edge_agent.errors import ConfigError
from edge_agent.link.settings import CA_FILE, BrokerSettings, TlsSettings

SETTINGS_CAP_BYTES = 1024 * 1024

_NO_TOML = "correct it there: text stands in quotes, a section is [name] (docs/settings.md lists all keys)"
_NO_FILE = "name the file itself with -c"
_READ = "give this user the right to read it"
_PLAINLY = {"extra_forbidden": "unknown", "missing": "missing"}
"""What pydantic says of a key in its own terms."""

Port = Annotated[int, Field(ge=1, le=65_535)]


class Section(BaseModel):
    """A table of the file: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _no_numbers(cls, table: Any) -> Any:
        """``true`` is no number, though pydantic takes it for 1."""
        for key, value in table.items() if isinstance(table, dict) else ():
            field = cls.model_fields.get(key)
            if isinstance(value, bool) and field is not None and not _takes_truth(field.annotation):
                raise ValueError(f"{key} = {str(value).lower()}: {str(value).lower()} is not a value of this key")
        return table


class BrokerSection(Section):
    """A broker; TLS when `credentials` or `ca` is given.

    `credentials` is a folder that `server-bridge pki` filled: `ca.crt`, and `<client id>.crt` and `.key` for each
    connection. `ca`, `certificate` and `key` name one pair for every connection.
    """

    host: str = "127.0.0.1"
    port: Port = 1883
    keepalive_s: Annotated[int, Field(ge=5, le=3600)] = 30
    username: str | None = None
    password: str | None = None
    credentials: Path | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    @model_validator(mode="after")
    def _tls_whole(self) -> Self:
        given = [name for name in ("ca", "certificate", "key") if getattr(self, name) is not None]
        if given and len(given) < 3:
            raise ValueError("ca, certificate and key go together: give all three or none")
        if given and self.credentials is not None:
            raise ValueError("give credentials, or ca, certificate and key, not both")
        return self

    def settings(self) -> BrokerSettings:
        """The link's form of this section."""
        tls = None
        if self.credentials is not None:
            tls = TlsSettings(ca=self.credentials / CA_FILE, credentials=self.credentials)
        elif self.ca is not None and self.certificate is not None and self.key is not None:
            tls = TlsSettings(ca=self.ca, certificate=self.certificate, key=self.key)
        return BrokerSettings(
            host=self.host,
            port=self.port,
            keepalive_s=self.keepalive_s,
            username=self.username,
            password=self.password,
            tls=tls,
        )


def read_toml(path: Path, *, path_keys: Collection[str], absent_hint: str) -> dict[str, Any]:
    """The tables of a settings file; relative paths under ``path_keys`` start at its folder.

    Raises:
        ConfigError: absent, too large, unreadable or no TOML.
    """
    try:
        with path.open("rb") as file:  # a device has no size to ask for
            content = file.read(SETTINGS_CAP_BYTES + 1)
        if len(content) > SETTINGS_CAP_BYTES:
            raise ConfigError(f"settings file {path} is larger than {SETTINGS_CAP_BYTES} bytes", _NO_FILE)
        raw = tomllib.loads(content.decode("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"settings file {path} does not exist", absent_hint) from None
    except (IsADirectoryError, NotADirectoryError) as error:
        raise ConfigError(f"settings file {path} cannot be read: {error.strerror}", _NO_FILE) from None
    except OSError as error:
        raise ConfigError(f"settings file {path} cannot be read: {error.strerror or error}", _READ) from None
    except UnicodeDecodeError as error:
        problem = f"settings file {path} cannot be read: byte {error.start} is no text in UTF-8"
        raise ConfigError(problem, _NO_FILE) from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:  # the parser calls itself for each bracket
        raise ConfigError(f"settings file {path} is not TOML: {error}", _NO_TOML) from None
    folder = path.resolve().parent
    for table in raw.values():
        if isinstance(table, dict):
            table.update({key: str(folder / table[key]) for key in path_keys if isinstance(table.get(key), str)})
    return raw


def settings_error(path: Path, model: type[BaseModel], error: ValidationError) -> ConfigError:
    """What is wrong in the file, and the way out."""
    details = error.errors(include_url=False, include_context=False)
    problems = "; ".join(_problem(model, detail)[:300] for detail in details)
    return ConfigError(f"settings file {path}: {problems}", _hint(model, details))


def _problem(model: type[BaseModel], detail: ErrorDetails) -> str:
    said = _PLAINLY.get(detail["type"], detail["msg"])
    return f"{_place(model, detail)}{_value(detail)}: {said}{_range(model, detail)}"


def _value(detail: ErrorDetails) -> str:
    """What stands there; never a password, which a whole table may hold."""
    secret = isinstance(detail["input"], dict) or "password" in detail["loc"]
    return "" if secret else f" = {detail['input']!r}"


def _hint(model: type[BaseModel], details: list[ErrorDetails]) -> str:
    sections = {kind: [one for one in details if one["type"] == kind and len(one["loc"]) == 1] for kind in _PLAINLY}
    if all(sections.values()):
        needed = ", ".join(_place(model, one) for one in sections["missing"])
        return f"is it another program's file? this one has {needed}; name it with -c"
    for detail in details:
        if detail["type"] == "extra_forbidden":
            return _suggest(model, detail)
        if detail["type"] == "missing":
            return f"add {_place(model, detail)}"
    return "correct the value and start again"


def _place(model: type[BaseModel], detail: ErrorDetails) -> str:
    """Section and key; the word by which a section's kind was chosen is no key."""
    parts = [str(part) for part in detail["loc"]]
    if len(parts) > 1 and parts[1] not in _keys(model, parts[0]) and len(_sections(model, parts[0])) > 1:
        parts.pop(1)
    if len(parts) < 2:
        return f"[{parts[0]}]" if parts else "the file"
    return f"[{parts[0]}] {'.'.join(parts[1:])}"


def _range(model: type[BaseModel], detail: ErrorDetails) -> str:
    """Both ends of what a number may be, where one of them was passed."""
    if detail["type"] not in _ENDS or len(detail["loc"]) < 2:
        return ""
    section, key = str(detail["loc"][0]), str(detail["loc"][-1])
    for each in _sections(model, section):
        if key in each.model_fields:
            field = each.model_fields[key]
            ends = [*_bounds(field.metadata), *_bounds_within(field.annotation)]
            return f" (range: {', '.join(ends)})" if len(ends) > 1 else ""
    return ""


_ENDS = {"greater_than", "greater_than_equal", "less_than", "less_than_equal"}
_SIGNS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def _bounds(metadata: Collection[Any]) -> list[str]:
    found = [(sign, getattr(item, word, None)) for item in metadata for word, sign in _SIGNS.items()]
    return [f"{sign} {limit:.15g}" for sign, limit in found if limit is not None]


def _bounds_within(annotation: Any) -> list[str]:
    """Of an optional number, whose bounds stand beside the type."""
    beside = _bounds([item for each in getattr(annotation, "__metadata__", ()) for item in each.metadata])
    return [*beside, *(end for part in typing.get_args(annotation) for end in _bounds_within(part))]


def _suggest(model: type[BaseModel], detail: ErrorDetails) -> str:
    parts = [str(part) for part in detail["loc"]]
    known = list(model.model_fields) if len(parts) == 1 else _keys(model, parts[0])
    near = difflib.get_close_matches(parts[-1], known, n=1)
    return f"did you mean {near[0]!r}?" if near else "remove the key"


def _keys(model: type[BaseModel], section: str) -> list[str]:
    return [key for each in _sections(model, section) for key in each.model_fields]


def _sections(model: type[BaseModel], section: str) -> list[type[BaseModel]]:
    field = model.model_fields.get(section)
    return _models(field.annotation) if field is not None else []


def _takes_truth(annotation: Any) -> bool:
    return annotation in (bool, Any) or any(_takes_truth(part) for part in typing.get_args(annotation))


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for part in typing.get_args(annotation) for found in _models(part)]
