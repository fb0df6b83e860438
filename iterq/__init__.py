"""iterq: iterated Q-networks, a window of consecutive Bellman updates learned at once.

chain.py is the idea, bellman.py the base algorithms, networks.py the function spaces; they do not know each other.
api.py is the library from Python: `iterq.make`, `learn`, `predict`, `save`, `iterq.load`.
"""

from typing import Any

__version__ = "0.2.0"

_API = (
    "make",
    "load",
    "Model",
    "DQN",
    "IDQN",
    "DoubleDQN",
    "QRDQN",
    "IQRDQN",
    "C51",
    "IC51",
    "IQN",
    "IIQN",
    "BootstrappedDQN",
    "SAC",
    "ISAC",
    "DroQ",
    "IDroQ",
)


def __getattr__(name: str) -> Any:
    if name in _API:  # on demand, because JAX takes a while to load and `iterq --version` does not need it
        from iterq import api

        return getattr(api, name)
    raise AttributeError(f"module 'iterq' has no attribute {name!r}")
