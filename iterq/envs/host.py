"""Gymnasium environments, one per agent, stepped from Python and restored exactly.

Every episode is reset with a seed of its own, a function of the agent's seed and the number of the episode. So an episode is
(seed, actions): to come back to the middle of one, reset with its seed and repeat its actions. That is exact for every
environment whose randomness comes from its seed, and it is checked: the frame must be the one that was seen then.
"""

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from iterq.envs.base import Spec
from iterq.errors import Refusal

TRAINING, EVALUATION = 0, 1  # what episodes are for; part of their seeds


class HostEnv(NamedTuple):
    """A kind of environment: as many copies of it as are asked for."""

    spec: Spec
    make: Callable[[], Any]  # a new instance
    own: Any = None  # the user's object, which is the first of them and not ours to close
    many: Any = None  # what steps the environments of a group; see `HostEnvs`, which does if this is None


class Answer(NamedTuple):
    """What the environments of a group return for one step, as arrays over agents."""

    frame: np.ndarray  # (agents, *shape) to be acted on next
    reward: np.ndarray  # (agents,) f32
    terminated: np.ndarray  # (agents,) bool
    first: np.ndarray  # (agents,) bool, the frame starts an episode


class Episode(NamedTuple):
    """A finished episode of one agent of a group."""

    agent: int
    step: int
    total: float  # the return
    length: int


def host_env(env: Any) -> HostEnv:
    """From a Gymnasium id, an environment object, or a function that makes one."""
    from iterq.envs.mujoco import bodies, is_body

    if isinstance(env, str):
        name, make = env, lambda: _make(env)
        one = make()
    elif isinstance(env, gymnasium.Env):
        name, one = env.spec.id if env.spec else type(env.unwrapped).__name__, env
        originals = iter([env])
        make = lambda: next(originals, None) or _copy(env, name)  # noqa: E731
    elif callable(env):
        one = env()
        name, make = getattr(env, "__name__", type(one).__name__), env
        if not isinstance(one, gymnasium.Env):
            raise Refusal(f"{name}() made a {type(one).__name__}, not a gymnasium.Env")
    else:
        raise Refusal(f"{env!r} is no environment: give a Gymnasium id, an environment, or a function that makes one")
    shape, dtype, states = _observations(name, one.observation_space)
    spec = Spec(name, shape, dtype, states=states, **_actions(name, one.action_space))
    many = bodies if is_body(one) else None
    if one is env:
        return HostEnv(spec, make, own=env)
    one.close()
    return HostEnv(spec, make, many=many)


def _make(name: str) -> Any:
    try:
        return gymnasium.make(name, disable_env_checker=True)
    except gymnasium.error.DependencyNotInstalled as error:
        raise Refusal(f"{name} needs a package that is not installed: {error}") from error
    except Exception as error:  # the environment's own, too
        raise Refusal(f"cannot make the environment {name!r}: {error}") from error


def _copy(env: Any, name: str) -> Any:
    try:
        return copy.deepcopy(env)
    except Exception as error:
        raise Refusal(f"{name} cannot be copied for a second agent or for evaluation ({error}); pass a function that makes it") from error


def _observations(name: str, space: Any) -> tuple[tuple[int, ...], str, int | None]:
    """Shape, stored type, and the number of states if observations are one of finitely many."""
    if isinstance(space, spaces.Discrete):
        if space.start:
            raise Refusal(f"{name} has observations {space}; only those that start at 0 are supported")
        return (), "int32", int(space.n)
    if isinstance(space, spaces.Box | spaces.MultiBinary | spaces.MultiDiscrete):
        kind = np.dtype(space.dtype)
        return tuple(space.shape), "float32" if kind.kind == "f" else "uint8" if kind == np.uint8 else "int32", None
    hint = "; gymnasium.wrappers.FlattenObservation makes one array of them" if isinstance(space, spaces.Dict | spaces.Tuple) else ""
    raise Refusal(f"{name} has observations {type(space).__name__}, which are not supported{hint}")


def _actions(name: str, space: Any) -> dict[str, Any]:
    """The fields of a `Spec` that say what actions are."""
    if isinstance(space, spaces.Discrete):
        return {"actions": int(space.n), "first_action": int(space.start)}
    if isinstance(space, spaces.Box) and len(space.shape) == 1 and np.dtype(space.dtype).kind == "f":
        if not np.all(np.isfinite(space.low) & np.isfinite(space.high) & (space.low < space.high)):
            raise Refusal(f"{name} has actions {space}; only bounded ones are supported (gymnasium.wrappers.RescaleAction, ClipAction)")
        return {"actions": space.shape[0], "low": tuple(space.low.tolist()), "high": tuple(space.high.tolist())}
    raise Refusal(f"{name} has actions {space}; supported are discrete ones and bounded vectors of numbers")


def episode_seed(seed: int, purpose: int, episode: int) -> int:
    """31 bits, since some environments take no more."""
    return int(np.random.SeedSequence([seed, purpose, episode]).generate_state(1)[0] >> 1)


class HostEnvs:
    """One environment per agent of a group. Not reset by an episode's end but by the step after it, as in `replay.py`."""

    def __init__(self, kind: HostEnv, seeds: Sequence[int], purpose: int) -> None:
        self.kind, self.seeds, self.purpose = kind, seeds, purpose
        self.envs = self._make()
        self.episode = [-1] * len(seeds)  # the number of the current episode
        self.actions: list[list[int]] = [[] for _ in seeds]  # taken in it
        self.total = [0.0] * len(seeds)
        self.over = [True] * len(seeds)
        self.frame = np.zeros((len(seeds), *kind.spec.shape), kind.spec.dtype)
        self._asked: tuple[list[int | None], list[int], int] = [], [], 0

    def _make(self) -> list[Any]:
        return [self.kind.make() for _ in self.seeds]

    def reset(self) -> Answer:
        """Start the first episode of every agent."""
        return self.step(np.zeros(len(self.seeds), np.int32), 0)[0]

    def step(self, actions: np.ndarray, n: int) -> tuple[Answer, list[Episode]]:
        """Step `n` of every agent, and the episodes that it ends. If an environment raises, nothing has happened to any of them."""
        self.begin(actions, n)
        return self.finish()

    def begin(self, actions: np.ndarray, n: int) -> None:
        """Have step `n` under way; `finish` returns what comes of it."""
        seeds = zip(self.seeds, self.episode, self.over, strict=True)
        starts = [episode_seed(seed, self.purpose, episode + 1) if over else None for seed, episode, over in seeds]
        self._asked = starts, actions.tolist(), n
        self._ask(*self._asked)

    def ready(self) -> bool:
        """Whether `finish` would not wait for others."""
        return True

    def awaited(self) -> list[int]:
        """Files that become readable when there is news from others."""
        return []

    def finish(self) -> tuple[Answer, list[Episode]]:
        """As `step`, for the step that has begun."""
        starts, chosen, n = self._asked
        frame, total, terminated, truncated = self._answers(starts, chosen, n)
        first, ended = np.array(self.over), []
        for j in range(len(starts)):
            if first[j]:
                self.episode[j], self.actions[j], self.total[j] = self.episode[j] + 1, [], 0.0
            else:
                self.actions[j].append(chosen[j])
                self.total[j] += total[j]
            self.over[j] = bool(terminated[j] or truncated[j])
            if self.over[j]:
                ended.append(Episode(j, n, self.total[j], len(self.actions[j])))
        self.frame = frame
        return Answer(frame, np.array(total, np.float32), terminated, first), ended

    def _ask(self, starts: list[int | None], actions: list[int], n: int) -> None:
        """Tell environments elsewhere what to do; those of this process do it when they are asked for answers."""

    def _answers(self, starts: list[int | None], actions: list[int], n: int) -> tuple[np.ndarray, list[float], np.ndarray, np.ndarray]:
        """Frames, rewards, terminated and truncated over agents; `starts`: the seed of an episode to start, None to take the action."""
        frame, total = np.empty_like(self.frame), [0.0] * len(starts)
        terminated, truncated = np.zeros(len(starts), bool), np.zeros(len(starts), bool)
        for j, env in enumerate(self.envs):
            try:
                if (start := starts[j]) is not None:
                    frame[j] = env.reset(seed=start)[0]
                else:
                    frame[j], gain, terminated[j], truncated[j], _ = env.step(self.kind.spec.outside(actions[j]))
                    total[j] = float(gain)
            except Exception as error:
                raise EnvironmentFailure(_raised(self.kind, error, f"at step {n} of seed {self.seeds[j]}")) from error
        return frame, total, terminated, truncated

    def journal(self, j: int) -> dict[str, Any]:
        """All that is needed to bring the environment of agent `j` back to where it is: plain arrays and numbers."""
        return {
            "episode": np.int64(self.episode[j]),
            "actions": np.array(self.actions[j], self.kind.spec.action.base).reshape(-1, *self.kind.spec.action.shape),
            "total": np.float64(self.total[j]),
            "over": np.bool_(self.over[j]),
            "frame": self.frame[j],
        }

    def restore(self, j: int, journal: dict[str, Any]) -> None:
        """Repeat the current episode of agent `j`; refused if it does not lead to the frame that was seen."""
        spec, episode = self.kind.spec, int(journal["episode"])
        try:
            frame = self._repeat(j, episode_seed(self.seeds[j], self.purpose, episode), journal["actions"])
        except Exception as error:
            raise Refusal(_raised(self.kind, error, f"when an episode of seed {self.seeds[j]} was repeated")) from error
        if not np.array_equal(np.asarray(frame, spec.dtype), journal["frame"], equal_nan=spec.dtype == "float32"):
            raise Refusal(f"{spec.name} does not repeat an episode from its seed and actions, so the run cannot be resumed exactly")
        self.episode[j], self.actions[j], self.total[j] = episode, journal["actions"].tolist(), float(journal["total"])
        self.over[j], self.frame[j] = bool(journal["over"]), frame

    def _repeat(self, j: int, start: int, actions: np.ndarray) -> Any:
        """The frame after `actions` in the episode of the seed `start`."""
        frame = self.envs[j].reset(seed=start)[0]
        for action in actions.tolist():
            frame = self.envs[j].step(self.kind.spec.outside(action))[0]
        return frame

    def close(self) -> None:
        for env in self.envs:
            if env is not self.kind.own:
                env.close()


class EnvironmentFailure(Refusal):
    """An environment raised in the middle of a run."""


def _raised(kind: HostEnv, error: Exception, when: str) -> str:
    return f"{kind.spec.name} raised {type(error).__name__} {when}: {error}"


def play(kind: HostEnv, seeds: Sequence[int], episodes: int, stack: int, choose: Callable[[np.ndarray, int], np.ndarray]) -> Iterator[Any]:
    """Evaluation: (agent, return, length) of `episodes` episodes of every agent, always the same ones, side by side.

    choose: (obs (agents, episodes, *obs), t) -> (agents, episodes, …) actions.
    """
    envs = [[kind.make() for _ in range(episodes)] for _ in seeds]
    try:
        yield from _play(kind, envs, seeds, stack, choose)
    finally:
        for env in (env for row in envs for env in row):
            env.close()


def _play(kind: HostEnv, envs: list[list[Any]], seeds: Sequence[int], stack: int, choose: Callable) -> Iterator[Any]:
    @contextlib.contextmanager
    def named(j: int, e: int) -> Iterator[Any]:
        try:
            yield envs[j][e]
        except Exception as error:
            raise Refusal(_raised(kind, error, f"in evaluation episode {e} of seed {seeds[j]}")) from error

    shape = (len(seeds), len(envs[0]))
    obs = np.zeros((*shape, *kind.spec.shape, stack), kind.spec.dtype)
    total, length, over = np.zeros(shape), np.zeros(shape, int), np.zeros(shape, bool)
    for j, e in np.ndindex(shape):
        with named(j, e) as env:
            obs[j, e, ..., -1] = env.reset(seed=episode_seed(seeds[j], EVALUATION, e))[0]
    while not over.all():
        actions = choose(obs if stack > 1 else obs[..., 0], int(length.max()))
        for j, e in np.argwhere(~over):
            with named(j, e) as env:
                frame, reward, terminated, truncated, _ = env.step(kind.spec.outside(actions[j, e].tolist()))
                obs[j, e, ..., :-1] = obs[j, e, ..., 1:]
                obs[j, e, ..., -1] = frame
                total[j, e] += float(reward)
                length[j, e] += 1
                over[j, e] = terminated or truncated
    for j, e in np.ndindex(shape):
        yield j, float(total[j, e]), int(length[j, e])
