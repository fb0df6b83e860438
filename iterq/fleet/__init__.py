"""A fleet of agents, side by side in one program."""

import os
import sys
from collections.abc import Sequence
from typing import Any

import jax

from iterq.agents import Agent
from iterq.config import Config
from iterq.envs.base import PureEnv, Spec
from iterq.errors import Refusal
from iterq.fleet.base import Evaluation, Fleet
from iterq.fleet.scanned import Scanned
from iterq.fleet.stepped import Stepped
from iterq.replay import Memory, nbytes, record

SHARE = 0.7  # of the device's memory that experience may take


def fleet(agent: Agent, env: Any, seeds: Sequence[int], on_host: bool = False) -> Fleet:
    """The fleet of `seeds` on `env`, a `PureEnv` or a `HostEnv`; `on_host`: experience stays in the host's memory."""
    if isinstance(env, PureEnv):
        if on_host:
            raise Refusal(f"{env.name} runs on the device, and so must its replay; make buffer_size smaller")
        return Scanned(agent, env, seeds)
    return Stepped(agent, env, seeds, on_host)


def place(config: Config, spec: Spec, env: Any, beside: int = 1, say: bool = False) -> bool:
    """Whether experience goes to the host's memory; says what it takes, and refuses what no memory here can hold.

    beside: how many fleets like this one share the memory.
    """
    memory = Memory(record(spec), config.buffer_size, prioritised=config.prioritised)
    size = nbytes(memory) * len(config.seeds)
    device = jax.devices()[0]
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // beside
    limit = (device.memory_stats() or {}).get("bytes_limit", host * beside) // beside
    # Where the device is the host, the host writes and reads faster.
    better = not (config.prioritised or isinstance(env, PureEnv)) and (device.platform == "cpu" or size > SHARE * limit)
    on_host = config.replay == "host" or (config.replay == "auto" and better)
    text = f"replay: {len(config.seeds)} × {config.buffer_size:,} rows, {size / 1e6:,.1f} MB"
    if size > SHARE * (host if on_host else limit):
        raise Refusal(f"{text}, more than {SHARE:.0%} of the memory there is; make buffer_size smaller or train fewer seeds")
    if say:
        print(f"{text} in the memory of {'the host' if on_host else f'the {device.platform} device'}", file=sys.stderr)
    return on_host


__all__ = ["Evaluation", "Fleet", "Scanned", "Stepped", "fleet", "place"]
