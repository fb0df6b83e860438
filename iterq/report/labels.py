"""What methods are called: by the settings in which their runs differ."""

import json
from typing import Any

from iterq.errors import Refusal
from iterq.identity import FREE
from iterq.report.scores import Source

ASIDE = FREE | {"env", "seeds"}  # settings that do not change what is learned, or say what is compared anyway


def labelled(sources: list[Source], group: tuple[str, ...] = ()) -> list[Source]:
    """Every source with a label: what it was given, the settings in `group`, or its algorithm and the settings that its runs differ in."""
    by_algorithm: dict[str, list[dict[str, Any]]] = {}
    for source in sources:
        if not source.label:
            by_algorithm.setdefault(source.config.get("algorithm", "?"), []).append(source.config)
    if group and (odd := [name for name in group if not any(name in config for found in by_algorithm.values() for config in found)]):
        raise Refusal(f"--group: no run has a setting {odd[0]!r}")
    found = []
    for source in sources:
        if source.label:
            found.append(source)
            continue
        algorithm = source.config.get("algorithm", "?")
        names = group or differing(by_algorithm[algorithm])
        said = [f"{name}={shown(source.config.get(name))}" for name in names if name != "algorithm"]
        head = [algorithm] if not group or "algorithm" in group else []
        found.append(source._replace(label=" ".join([*head, *said])))
    return found


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
