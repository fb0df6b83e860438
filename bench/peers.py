"""The DQN loop of two peers on CartPole, for comparison: stable-baselines3's own, and the logic of CleanRL's dqn_jax written out here.

Each prints one JSON line with its steps per second after warm-up. Run by bench/cartpole.py; stable-baselines3 brings PyTorch, so it lives
in an interpreter of its own: python bench/peers.py sb3|cleanrl STEPS BATCH G WIDTHS
"""

import json
import resource
import sys
import time
from typing import Any

WARM_UP = 2_000  # steps before the clock starts; learning begins halfway


def sb3(steps: int, batch: int, G: int, widths: list[int]) -> float:
    """Steps per second of stable_baselines3.DQN."""
    import stable_baselines3 as peer  # pyright: ignore[reportMissingImports]
    import torch  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(1)  # the fastest setting for networks this small
    model = peer.DQN(
        "MlpPolicy",
        "CartPole-v1",
        learning_rate=5e-4,
        buffer_size=50_000,
        learning_starts=WARM_UP // 2,
        batch_size=batch,
        train_freq=G,
        target_update_interval=1_000,
        policy_kwargs={"net_arch": widths},
        seed=0,
    )
    model.learn(WARM_UP)
    started = time.perf_counter()
    model.learn(steps, reset_num_timesteps=False)
    return steps / (time.perf_counter() - started)


def cleanrl(steps: int, batch: int, G: int, widths: list[int]) -> float:
    """Steps per second of CleanRL's way: a vector of one environment, a NumPy ring buffer, one jitted call to act and one to update."""
    import flax.linen as nn
    import gymnasium
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    from flax.training.train_state import TrainState

    class QNetwork(nn.Module):
        @nn.compact
        def __call__(self, x):
            for width in widths:
                x = nn.relu(nn.Dense(width)(x))
            return nn.Dense(2)(x)

    class State(TrainState):
        target_params: dict

    rng, capacity, gamma = np.random.default_rng(0), 50_000, 0.99
    envs = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1"))])
    net = QNetwork()
    obs, _ = envs.reset(seed=0)
    params = net.init(jax.random.key(0), obs)
    state = State.create(apply_fn=net.apply, params=params, target_params=params, tx=optax.adam(5e-4))
    act: Any = jax.jit(net.apply)

    @jax.jit
    def update(state, obs, actions, next_obs, rewards, dones):
        best = jnp.asarray(net.apply(state.target_params, next_obs)).max(-1)
        y = rewards + (1 - dones) * gamma * best

        def mse(params):
            q = jnp.asarray(net.apply(params, obs))[jnp.arange(batch), actions]
            return ((q - y) ** 2).mean(), q

        (loss, q), grads = jax.value_and_grad(mse, has_aux=True)(state.params)
        return loss, q, state.apply_gradients(grads=grads)

    buffer = [np.zeros((capacity, *shape), kind) for shape, kind in (((4,), "f4"), ((), "i4"), ((4,), "f4"), ((), "f4"), ((), "f4"))]
    started, loss = 0.0, 0.0
    for n in range(WARM_UP + steps):
        if n == WARM_UP:
            jax.block_until_ready(state)
            started = time.perf_counter()
        epsilon = max(0.05, 1 - n / 10_000)
        actions = (
            np.array([envs.single_action_space.sample()]) if rng.random() < epsilon else jax.device_get(act(state.params, obs).argmax(-1))
        )
        next_obs, rewards, terminated, _, _ = envs.step(actions)
        for store, x in zip(buffer, (obs[0], actions[0], next_obs[0], rewards[0], terminated[0]), strict=True):
            store[n % capacity] = x
        obs = next_obs
        if n > WARM_UP // 2 and n % G == 0:
            at = rng.integers(0, min(n, capacity), batch)
            o, a, o2, r, d = (store[at] for store in buffer)
            loss, _, state = update(state, o, a, o2, r, d)
            if n % 100 == 0:
                loss = float(loss)
        if n % 1_000 == 0:
            state = state.replace(target_params=optax.incremental_update(state.params, state.target_params, 1.0))
    jax.block_until_ready(state)
    return steps / (time.perf_counter() - started)


if __name__ == "__main__":
    name, steps, batch, G, widths = sys.argv[1:6]
    rate = {"sb3": sb3, "cleanrl": cleanrl}[name](int(steps), int(batch), int(G), [int(w) for w in widths.split(",")])
    print(json.dumps({"steps_per_second": rate, "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
