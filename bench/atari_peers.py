"""Steps per second of the whole loop on Breakout, one agent: iterq beside the logic of its peers, on the same emulator and protocol.

    python bench/atari_peers.py --sb3 /tmp/sb3/bin/python        # with stable-baselines3, ale-py and opencv-python-headless

Dopamine's JAX DQN and the authors' i-DQN (independent networks) have the network with 7 744 features, CleanRL's dqn_atari_jax and
Stable-Baselines3's DQN the one with 3 136. The first three are written down here in a few lines: a flax network, a compiled function that
acts, one that updates, a replay of frames in NumPy. Every program in a process of its own, several rounds; the median counts.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

WARM_UP, BATCH, G, ROWS = 80, 32, 4, 2_000
PROGRAMS = {
    "Dopamine DQN, logic": ("logic", "SAME", 1),
    "authors' i-DQN K = 1, logic": ("logic", "SAME", -1),
    "iterq DQN": ("ours", "nature", 1),
    "authors' i-DQN K = 5, logic": ("logic", "SAME", -5),
    "iterq i-DQN K = 5": ("ours", "nature", 5),
    "CleanRL DQN, logic": ("logic", "VALID", 1),
    "Stable-Baselines3 DQN": ("sb3", "VALID", 1),
    "iterq DQN, VALID": ("ours", "nature-valid", 1),
}


@dataclass(frozen=True)
class Options:
    """What to measure."""

    steps: int = 200
    """Steps per measurement, after warm-up."""
    rounds: int = 3
    """Measurements of every program."""
    sb3: str = ""
    """An interpreter that has stable-baselines3; empty: leave it out."""


def ours(steps: int, torso: str, K: int) -> float:
    import jax

    from iterq.api import make

    fields: Any = {"learning_starts": WARM_UP // 2, "epsilon_decay": 1, "buffer_size": ROWS, "log_every": 10**9, "checkpoint_every": 0}
    model = make("i-dqn", "Breakout", K=K, seeds=1, torso=torso, **fields)
    model.learn(WARM_UP)
    assert model.session
    started = time.perf_counter()
    model.learn(steps)
    jax.block_until_ready(model.session.fleet.counts())
    return steps / (time.perf_counter() - started)


def logic(steps: int, padding: str, K: int) -> float:
    """K < 0: -K networks side by side, each the target of the next, parameters and all mapped over."""
    import flax.linen as nn
    import jax
    import jax.numpy as jnp
    import optax

    from iterq.emulator import Atari

    class Network(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = x / 255.0
            for features, size, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
                x = nn.relu(nn.Conv(features, (size, size), (stride, stride), padding)(x))
            return nn.Dense(env.action_space.n)(nn.relu(nn.Dense(512)(x.reshape(x.shape[0], -1))))

    env: Any = Atari("breakout")
    rng = np.random.default_rng(0)
    network: Any = Network()
    adam = optax.adam(6.25e-5, eps=1.5e-4)
    init = lambda key: network.init(key, jnp.zeros((1, 84, 84, 4)))  # noqa: E731
    params = jax.vmap(init)(jax.random.split(jax.random.key(0), -K)) if K < 0 else init(jax.random.key(0))
    targets, moments = params, (jax.vmap(adam.init) if K < 0 else adam.init)(params)

    def one(params: Any, target: Any, moments: Any, obs: Any, action: Any, reward: Any, over: Any, next_obs: Any) -> Any:
        def loss(params: Any) -> Any:
            y = reward + 0.99 * (1 - over) * network.apply(target, next_obs).max(1)
            return jnp.mean((network.apply(params, obs)[jnp.arange(BATCH), action] - jax.lax.stop_gradient(y)) ** 2)

        value, grads = jax.value_and_grad(loss)(params)
        updates, moments = adam.update(grads, moments)
        return optax.apply_updates(params, updates), moments, value

    update = jax.jit(jax.vmap(one, (0, 0, 0, None, None, None, None, None)) if K < 0 else one)
    first = (lambda p: jax.tree.map(lambda x: x[0], p)) if K < 0 else (lambda p: p)
    act = jax.jit(lambda params, obs: network.apply(first(params), obs[None]).argmax())

    frames, actions = np.zeros((ROWS, 84, 84), np.uint8), np.zeros(ROWS, int)
    rewards, overs = np.zeros(ROWS, np.float32), np.zeros(ROWS, np.float32)
    stack, frame, started = np.zeros((84, 84, 4), np.uint8), env.reset(seed=0)[0], 0.0
    for n in range(WARM_UP + steps):
        if n == WARM_UP:
            jax.block_until_ready(params)
            started = time.perf_counter()
        stack = np.concatenate([stack[..., 1:], frame[..., None]], -1)
        action = int(act(params, stack)) if n > 40 and rng.random() > 0.01 else int(rng.integers(env.action_space.n))
        frames[n % ROWS], actions[n % ROWS] = frame, action
        frame, reward, over, _, _ = env.step(action)
        rewards[n % ROWS], overs[n % ROWS] = np.clip(reward, -1, 1), over
        if over:
            frame, stack = env.reset(seed=n)[0], np.zeros_like(stack)
        if n > 40 and n % G == 0:
            i = rng.integers(4, min(n, ROWS) - 1, BATCH)[:, None] + np.arange(-3, 2)
            seen = frames[i % ROWS].transpose(0, 2, 3, 1)
            at = i[:, 3] % ROWS
            params, moments, _ = update(params, targets, moments, seen[..., :4], actions[at], rewards[at], overs[at], seen[..., 1:])
    jax.block_until_ready(params)
    return steps / (time.perf_counter() - started)


def sb3(steps: int) -> float:
    import gymnasium
    import stable_baselines3  # pyright: ignore[reportMissingImports]
    from stable_baselines3.common.callbacks import BaseCallback  # pyright: ignore[reportMissingImports]

    from iterq.emulator import Atari

    class Times(BaseCallback):
        seen: list = []  # noqa: RUF012

        def _on_step(self) -> bool:
            self.seen.append(time.perf_counter())
            return True

    env = gymnasium.wrappers.FrameStackObservation(Atari("breakout"), 4)
    model = stable_baselines3.DQN(
        "CnnPolicy",
        env,
        learning_rate=6.25e-5,
        buffer_size=ROWS,
        learning_starts=40,
        batch_size=BATCH,
        train_freq=G,
        exploration_fraction=1e-6,
    )
    times = Times()
    model.learn(WARM_UP + steps, times)
    return steps / (times.seen[-1] - times.seen[WARM_UP - 1])


def main(options: Options) -> None:
    found: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for name, (kind, *words) in PROGRAMS.items():
            if kind == "sb3" and not options.sb3:
                continue
            interpreter = options.sb3 if kind == "sb3" else sys.executable
            command = [interpreter, __file__, kind, str(options.steps), *([] if kind == "sb3" else map(str, words))]
            environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
            if done.returncode:
                raise SystemExit(f"{name} failed: {done.stderr[-500:]}")
            found.setdefault(name, []).append(float(done.stdout.split()[-1]))
            print(f"{name}: {found[name][-1]:.1f} steps/s", file=sys.stderr, flush=True)
    print(json.dumps({name: {"median": statistics.median(rates), "all": rates} for name, rates in found.items()}, indent=1))


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in ("ours", "logic", "sb3"):
        kind, steps, *words = sys.argv[1:]
        print({"ours": ours, "logic": logic, "sb3": sb3}[kind](int(steps), *words[:1], *map(int, words[1:])))
    else:
        import tyro

        main(tyro.cli(Options))
