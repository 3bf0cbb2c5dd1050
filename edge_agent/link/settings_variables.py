"""Settings whose file environment variables override."""

from typing import Any, TypeVar, cast

from pydantic import BaseModel, create_model
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from edge_agent.errors import ConfigError

S = TypeVar("S", bound=BaseModel)


class _VariablesFirst(BaseSettings):
    model_config = SettingsConfigDict(env_nested_delimiter="__")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return env_settings, init_settings


def overridden(model: type[S], raw: dict[str, Any], prefix: str) -> S:
    """The settings of a file with what variables say in its place.

    Args:
        model: the settings'.
        raw: the file's sections.
        prefix: of the variables' names, in any case; the section and the key follow, ``__`` between them.

    Raises:
        ConfigError: a variable cannot be read.
        ValidationError: a value is wrong.
    """
    reading: Any = create_model(model.__name__, __base__=(model, _VariablesFirst))
    try:
        settings = reading(_env_prefix=prefix, **raw)
    except SettingsError as error:
        raise ConfigError(f"a variable {prefix}...: {error}", "give a section as JSON, or a variable a key") from None
    return cast(S, settings)
