"""Options from a TOML file; what the command line says wins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fivesigma._tools.files import read_text
from fivesigma.errors import InputError, did_you_mean, shortened

_NOT_IN_A_FILE = ("config", "resume", "force", "help")


def read_config(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    """Make the keys of a TOML file the defaults of the options of the same name."""
    if path is None:
        return
    import tomllib

    try:
        content = tomllib.loads(read_text(path))
    except (OSError, UnicodeDecodeError) as err:
        raise InputError(f"{path} cannot be read: {getattr(err, 'strerror', None) or err}") from err
    except (tomllib.TOMLDecodeError, RecursionError) as err:
        raise InputError(f"{path} is not TOML: {shortened(str(err), 200)}") from err
    options = {
        flag.removeprefix("--"): option
        for option in ctx.command.params
        if isinstance(option, click.Option)
        for flag in option.opts
        if flag.startswith("--") and flag.removeprefix("--") not in _NOT_IN_A_FILE
    }
    defaults: dict[str, Any] = {}
    for key, value in content.items():
        name = key.replace("_", "-")
        if name not in options:
            hint = did_you_mean(name, options) or f"; known are {', '.join(options)}"
            raise InputError(f"{path} has the unknown key {key!r}{hint}")
        option = options[name]
        if isinstance(value, bool | dict) or (isinstance(value, list) and not option.multiple):
            raise InputError(f"{path}: {key} cannot be {shortened(repr(value))}")
        defaults[str(option.name)] = [value] if option.multiple and not isinstance(value, list) else value
    ctx.default_map = defaults


config_option = click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    is_eager=True,
    expose_value=False,
    callback=read_config,
    metavar="TOML",
    help="File with the same keys as these options.",
)
