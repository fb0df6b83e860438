"""The data set of Section 5: what a uniformly random policy sees, starting over and over from (-0.5, 0)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from iterq.bellman import Transition
from iterq.envs import car_on_hill as env

HALF = np.array([env.MAX_POSITION, env.MAX_VELOCITY])  # of the space of states, which is symmetric


class Rows(NamedTuple):
    """One row per environment step, episodes one after the other, so that the next state of row i is that of row i + 1.

    A terminated row has discount 0, which makes its successor irrelevant. `valid` is false where there is no successor: the last
    row of an episode that ran into the horizon (as in the authors' data, where time-outs start no transition), and the very last.
    """

    state: np.ndarray  # (R, 2)
    action: np.ndarray  # (R,)
    reward: np.ndarray  # (R,)
    discount: np.ndarray  # (R,)
    valid: np.ndarray  # (R,)

    def transitions(self) -> Transition:
        """The valid rows as a batch of transitions."""
        i = np.flatnonzero(self.valid)
        return Transition(self.state[i], self.action[i], self.reward[i], self.discount[i], self.state[(i + 1) % len(self.state)])


def collect(samples: int, horizon: int, gamma: float, seed: int = 0) -> Rows:
    """`samples` steps of the uniform policy in episodes of at most `horizon` steps."""

    def episode(key: jax.Array) -> tuple:
        def walk(state: jax.Array, key: jax.Array) -> tuple:
            action = jax.random.randint(key, (), 0, env.ACTIONS)
            outcome = env.step(state, action)
            return outcome.state, (state, action, outcome.reward, outcome.terminated)

        return jax.lax.scan(walk, jnp.array(env.START), jax.random.split(key, horizon))[1]

    # Episode e is a function of (seed, e) alone, so simulating some too many changes nothing.
    count = jnp.arange(-(-4 * samples // horizon))
    while True:
        keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(jax.random.key(seed), count)
        state, action, reward, terminated = map(np.asarray, jax.jit(jax.vmap(episode))(keys))
        lived = np.cumsum(terminated, axis=1) - terminated == 0  # rows up to and including the terminal one
        if lived.sum() >= samples:
            break
        count = jnp.arange(2 * len(count))

    valid = np.ones_like(terminated)
    valid[:, -1] = terminated[:, -1]
    state, action, reward, terminated, valid = (x[lived][:samples] for x in (state, action, reward, terminated, valid))
    valid[-1] = terminated[-1]
    return Rows(state, action, reward, np.float32(gamma) * ~terminated, valid)


def grid(points: int = 17) -> np.ndarray:
    """(points², 2) the evenly spaced states of [-1, 1] x [-3, 3] on which Ernst et al. evaluate."""
    axes = np.linspace(-HALF, HALF, points, axis=1, dtype=np.float32)
    return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)


def sample_weights(rows: Rows, points: int = 17) -> np.ndarray:
    """(points²,) the share of the data set's states nearest to each grid state; the authors' ρ."""
    nearest = np.rint((rows.state + HALF) / (2 * HALF) * (points - 1)).astype(int)
    return np.bincount(nearest[:, 0] * points + nearest[:, 1], minlength=points**2) / len(nearest)
