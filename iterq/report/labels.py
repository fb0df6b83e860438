"""What methods are called: by the settings in which their runs differ."""

import json
from typing import Any

from iterq.errors import Refusal
from iterq.identity import FREE
from iterq.report.scores import Source

ASIDE = FREE | {"env", "seeds"}  # settings that do not change what is learned, or say what is compared anyway


def labelled(sources: list[Source], group: tuple[str, ...] = ()) -> list[Source]:
    """Every source with a label: what it was given, the settings in `group`, or its algorithm and the settings that its runs differ in."""
    unnamed = [source.config for source in sources if not source.label]
    if odd := [name for name in group if not any(name in config for config in unnamed)]:
        raise Refusal(f"--group: no run has a setting {odd[0]!r}")
    differences = {
        name: differing([config for config in unnamed if config.get("algorithm", "?") == name])
        for name in {config.get("algorithm", "?") for config in unnamed}
    }

    def label(config: dict[str, Any]) -> str:
        algorithm = config.get("algorithm", "?")
        said = [f"{name}={shown(config.get(name))}" for name in group or differences[algorithm] if name != "algorithm"]
        return " ".join([algorithm, *said] if not group or "algorithm" in group else said)

    return [source if source.label else source._replace(label=label(source.config)) for source in sources]


def differing(configs: list[dict[str, Any]]) -> list[str]:
    """The settings that are not the same in all of them."""
    names = dict.fromkeys(name for config in configs for name in config if name not in ASIDE)
    return [name for name in names if len({json.dumps(config.get(name), sort_keys=True) for config in configs}) > 1]


def shown(value: Any) -> str:
    """A setting as a person writes it."""
    return (
        ",".join(map(str, value))
        if isinstance(value, list | tuple)
        else "–"
        if value is None
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )
