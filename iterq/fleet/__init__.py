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

SHARE, DEVICE_SHARE = 0.7, 0.9  # of the memory of the host and of an accelerator that experience may take


def fleet(agent: Agent, env: Any, seeds: Sequence[int], on_host: bool = False, beside: int = 1) -> Fleet:
    """The fleet of `seeds` on `env`, a `PureEnv` or a `HostEnv`, one of `beside`; `on_host`: experience stays in the host's memory."""
    if isinstance(env, PureEnv):
        if on_host:
            raise Refusal(f"{env.name} runs on the device, and so must its replay; make buffer_size smaller")
        return Scanned(agent, env, seeds)
    return Stepped(agent, env, seeds, on_host, beside)


def place(config: Config, spec: Spec, env: Any, beside: int = 1, share_of: int = 1, say: bool = False) -> bool:
    """Whether experience goes to the host's memory; says what it takes, and refuses what no memory here can hold.

    beside: how many fleets like this one share the memory of this process; share_of: how many processes share that of the host.
    """
    memory = Memory(record(spec), config.buffer_size, prioritised=config.prioritised)
    size = nbytes(memory) * len(config.seeds)
    device = jax.devices()[0]
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (beside * share_of)
    limit = (device.memory_stats() or {}).get("bytes_limit", host * beside) // beside
    share = SHARE if device.platform == "cpu" else DEVICE_SHARE
    # Where the device is the host, the host writes and reads faster.
    better = not (config.prioritised or isinstance(env, PureEnv)) and (device.platform == "cpu" or size > share * limit)
    on_host = config.replay == "host" or (config.replay == "auto" and better)
    text = f"replay: {len(config.seeds)} × {config.buffer_size:,} rows, {size / 1e6:,.1f} MB"
    bound = SHARE * host if on_host else share * limit
    if size > bound:
        where = "host" if on_host else f"{device.platform} device"
        raise Refusal(
            f"{text}, more than the {bound / 1e6:,.1f} MB that the {where} has for it; make buffer_size smaller or train fewer seeds"
        )
    if say:
        print(f"{text} in the memory of {'the host' if on_host else f'the {device.platform} device'}", file=sys.stderr)
    return on_host


__all__ = ["Evaluation", "Fleet", "Scanned", "Stepped", "fleet", "place"]
