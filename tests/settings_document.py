"""``docs/settings.md``, generated from the models that read the two settings files."""

import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from edge_agent.config import ENVIRONMENT_PREFIX, AgentSettings
from server_bridge.config import BridgeSettings

_HEAD = f"""# Settings

Generated from the models that read them (`python -m tests.docs_build`). Relative paths start at the settings
file's folder. Unknown keys are refused. On a gateway an environment variable wins over the file:
`{ENVIRONMENT_PREFIX}BROKER__HOST=broker.plant.example`.

"""


def settings_document() -> str:
    """The whole page."""
    parts = [_HEAD, "## agent.toml\n\n", *_sections(AgentSettings), "## bridge.toml\n\n", *_sections(BridgeSettings)]
    return "".join(parts).rstrip() + "\n"


def _sections(model: type[BaseModel]) -> Iterator[str]:
    for name, info in model.model_fields.items():
        for section in _models(info.annotation):
            kind = section.model_fields.get("kind")
            title = f"### [{name}]" + (f" kind = {_words(kind.annotation)}" if kind is not None else "")
            yield f"{title}\n\n{_flat(section.__doc__)}\n\n| key | value | default |\n|---|---|---|\n"
            for key, field in section.model_fields.items():
                if key != "kind":
                    yield f"| `{key}` | {_value(field)} | {_default(field)} |\n"
            yield "\n"


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in typing.get_args(annotation) for model in _models(part)]


def _flat(text: str | None) -> str:
    return " ".join((text or "").replace("``", "`").split())


def _value(field: FieldInfo) -> str:
    bounds = []
    for item in field.metadata:
        for word, sign in (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<")):
            limit = getattr(item, word, None)
            if limit is not None:
                bounds.append(f"{sign} {limit:g}")
    return ", ".join([_words(field.annotation), *bounds])


def _words(annotation: Any) -> str:
    origin = typing.get_origin(annotation)
    if origin is typing.Literal:
        return " / ".join(f'"{value}"' for value in typing.get_args(annotation))
    if origin is typing.Annotated:
        return _words(typing.get_args(annotation)[0])
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_words(part) for part in typing.get_args(annotation) if part is not type(None))
    if origin is dict:
        return "table"
    if origin is list:
        return "list"
    names = {str: "text", int: "whole number", float: "number", bool: "true / false", Path: "path"}
    return names.get(annotation, str(annotation))


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "must be given"
    if field.default is None or field.default == {}:
        return ""
    if isinstance(field.default, bool):
        return f"`{str(field.default).lower()}`"
    if isinstance(field.default, Path | str):
        return f'`"{field.default}"`'
    return f"`{field.default:g}`" if isinstance(field.default, float) else f"`{field.default}`"
