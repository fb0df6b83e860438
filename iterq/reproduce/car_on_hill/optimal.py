"""Q* and Q^π on the grid: exact search over action sequences, and rollouts, on the environment's own dynamics.

From a state, the best return is γⁿ⁻¹ where n is the fewest steps in which some action sequence wins, or -γᵐ⁻¹ if none wins and
m is the longest any sequence lasts. A plain search visits 2ⁿ states with n up to 22, so a coarse table first bounds from below how
many steps each cell still needs, optimistically, and the search drops every sequence that cannot win within the number of steps it
currently tries. Dropping by a lower bound loses nothing: the result is that of the plain search, in a few thousandths of its steps.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from scipy.ndimage import minimum_filter

from iterq.envs import car_on_hill as env
from iterq.networks import Network, Params
from iterq.reproduce.car_on_hill.data import HALF

CHUNK = 1 << 14  # states per compiled call

_step = jax.jit(env.step)


def step_all(state: np.ndarray, action: np.ndarray) -> env.Outcome:
    """`env.step` on any number of states, in calls of one size, so that it compiles once."""
    pad = -len(state) % CHUNK
    states = np.pad(np.asarray(state, np.float32), ((0, pad), (0, 0))).reshape(-1, CHUNK, 2)
    actions = np.pad(np.asarray(action, np.int32), (0, pad)).reshape(-1, CHUNK)
    calls = [jax.tree.map(np.asarray, _step(s, a)) for s, a in zip(states, actions, strict=True)]
    return env.Outcome(*(np.concatenate(x)[: len(state)] for x in zip(*calls, strict=True)))


class StepsToGo:
    """A lower bound on the number of steps to the goal, constant on each of cells x cells boxes; infinite where none wins."""

    def __init__(self, cells: int = 200) -> None:
        self.cells = cells
        side = 2 * HALF / cells
        axes = [np.arange(cells) * w - h + w / 2 for w, h in zip(side, HALF, strict=True)]
        centre = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
        moves = []
        for a in range(env.ACTIONS):
            action = np.full(len(centre), a)
            middle = step_all(centre, action).state
            corners = [step_all(centre + np.array(c) * side / 2, action).state for c in ((1, 1), (1, -1), (-1, 1), (-1, -1))]
            # The image of a box lies within `reach` of the image of its centre; a quarter more covers the curvature of the flow.
            reach = 1.25 * np.max([np.abs(c - middle) for c in corners], axis=0)
            fails = (middle[:, 0] + reach[:, 0] < -HALF[0]) | (np.abs(middle[:, 1]) - reach[:, 1] > HALF[1])
            wins = (middle[:, 0] + reach[:, 0] > HALF[0]) & ~fails
            size = tuple(2 * np.ceil(reach[~fails & ~wins].max(0) / side).astype(int) + 1)
            moves.append((middle, fails, wins, size))

        self.table, new = np.zeros(0), np.full((cells, cells), np.inf)
        while not np.array_equal(self.table, new):  # value iteration, at every step free to pick the best box within reach
            self.table = new
            best = [minimum_filter(new, size=size, mode="nearest")[self.cell(middle)] for middle, _, _, size in moves]
            options = [np.where(wins, 1, np.where(fails, np.inf, 1 + x)) for (_, fails, wins, _), x in zip(moves, best, strict=True)]
            new = np.minimum(*options).reshape(cells, cells)

    def cell(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        i = ((state + HALF) / (2 * HALF) * self.cells).astype(int).clip(0, self.cells - 1)
        return i[:, 0], i[:, 1]

    def __call__(self, state: np.ndarray) -> np.ndarray:
        return self.table[self.cell(state)]


def explore(starts: np.ndarray, bound: np.ndarray, to_go: StepsToGo, horizon: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Breadth first from every start at once, dropping sequences that cannot win within `bound` steps of their start.

    Returns, per start, the step at which the first sequence won (0: none), the step at which the last one ended, and whether a longer
    bound could still win.
    """
    won, lasted, more = (np.zeros(len(starts), t) for t in (int, int, bool))
    state, owner = starts, np.arange(len(starts))
    for depth in range(1, horizon + 1):
        if not len(owner):
            break
        owner = np.repeat(owner, env.ACTIONS)
        outcome = step_all(np.repeat(state, env.ACTIONS, axis=0), np.tile(np.arange(env.ACTIONS), len(state)))
        lasted[owner] = depth
        won[owner[outcome.reward > 0]] = depth
        going = ~outcome.terminated & (won[owner] == 0)
        state, owner = outcome.state[going], owner[going]
        needed = depth + to_go(state)
        more[owner[np.isfinite(needed) & (needed > bound[owner])]] = True
        state, owner = state[needed <= bound[owner]], owner[needed <= bound[owner]]
    return won, lasted, more


def optimal_v(states: np.ndarray, gamma: float, horizon: int, to_go: StepsToGo | None = None) -> np.ndarray:
    """(n,) V* of non-terminal `states` (n, 2)."""
    to_go = to_go or StepsToGo()
    bound = to_go(states)
    won = np.zeros(len(states), int)
    todo = np.flatnonzero(np.isfinite(bound))
    while len(todo):
        won[todo], _, more = explore(states[todo], bound[todo], to_go, horizon)
        todo = todo[(won[todo] == 0) & more]
        bound[todo] += 1
    lost = np.flatnonzero(won == 0)
    _, lasted, _ = explore(states[lost], np.full(len(lost), np.inf), to_go, horizon)
    value = gamma ** (won - 1.0)
    value[lost] = np.where(lasted < horizon, -(gamma ** (lasted - 1.0)), 0)
    return value


def optimal_q(states: np.ndarray, gamma: float, horizon: int, to_go: StepsToGo | None = None) -> np.ndarray:
    """(n, A) Q* of `states` (n, 2): r + γV*(s′)."""
    first = step_all(np.repeat(states, env.ACTIONS, axis=0), np.tile(np.arange(env.ACTIONS), len(states)))
    q = first.reward.astype(float)
    going = ~first.terminated
    q[going] += gamma * optimal_v(first.state[going], gamma, horizon, to_go)
    return q.reshape(-1, env.ACTIONS)


def greedy_q(net: Network, states: np.ndarray, gamma: float, horizon: int) -> Callable[[Params], np.ndarray]:
    """A function of P parameter sets: (P, n, A) Q^π of `states` (n, 2) for each greedy policy, by rollouts of `horizon` steps."""
    first = jax.tree.map(jnp.asarray, step_all(np.repeat(states, env.ACTIONS, axis=0), np.tile(np.arange(env.ACTIONS), len(states))))

    def rollout(theta: Params) -> jax.Array:
        def going(carry: tuple) -> jax.Array:
            _, done, _, t = carry
            return (t < horizon) & ~done.all()

        def walk(carry: tuple) -> tuple:
            state, done, total, t = carry
            outcome = env.step(state, net.apply(theta, state.T).argmax(0))
            return outcome.state, done | outcome.terminated, total + jnp.where(done, 0, gamma**t * outcome.reward), t + 1

        return jax.lax.while_loop(going, walk, (first.state, first.terminated, first.reward, jnp.int32(1)))[2]

    rollouts = jax.jit(lambda policies: jax.lax.map(rollout, policies, batch_size=8))
    return lambda policies: np.asarray(rollouts(policies)).reshape(-1, len(states), env.ACTIONS)
