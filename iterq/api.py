"""The library from Python, in the words of Stable-Baselines3: learn, predict, save, load.

agent = iterq.make("i-dqn", env="CartPole-v1", K=5)
agent.learn(50_000, progress_bar=True)
action, _ = agent.predict(obs, deterministic=True)
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from iterq import checkpoint
from iterq.actor_critic import actor_critic
from iterq.agents import Learner, Noise, q_agent
from iterq.config import Config
from iterq.envs import noted, resolve
from iterq.envs.base import Spec
from iterq.errors import Refusal
from iterq.fleet import Evaluation, Fleet, fleet, place
from iterq.keys import bare
from iterq.loop import Callback, Session, Summary
from iterq.presets import configure, preset_for
from iterq.progress import shown, silent
from iterq.reads import refuse_unread
from iterq.store import Run, config_from, in_place_of

FORMAT = 1


class Model:
    """A trained or trainable agent per seed.

    network: parts of your own. The first of them sees an image as (height, width, channels) and anything else as a vector, both float32,
        bytes scaled to [0, 1]; stacked frames are channels.
    optimiser: any optax transformation.
    """

    def __init__(self, config: Config, env: Any, network: Mapping[str, Any] | None = None, optimiser: Any = None) -> None:
        self.env, self.spec = resolve(env, config.emulator) if not isinstance(env, Spec) else (None, env)
        self.config = dataclasses.replace(config, env=self.spec.name)
        self._made_of = network, optimiser
        self.agent = (actor_critic if config.bellman == "soft" else q_agent)(self.config, self.spec, network, optimiser)
        self.learners: list[Learner] | None = None  # of a loaded model, before it learns on
        self.session: Session | None = None
        self.summary: Summary | None = None
        self._rng = np.random.default_rng(self.config.seeds[0])
        self._greedy = jax.jit(self.agent.greedy)
        quiet = Noise(jnp.int32(0), jnp.zeros(self.spec.action.shape, self.spec.action.base), jnp.int32(1), None)
        self._drawn = jax.jit(jax.vmap(lambda learner, obs, key: self.agent.act(learner, 1, obs, quiet._replace(key=key)), (None, 0, 0)))

    def _fleet(self, config: Config) -> Fleet:
        if self.env is None:
            raise Refusal(f"this model was loaded without an environment; load it with env={self.spec.name!r} or another one")
        return fleet(self.agent._replace(config=config), self.env, config.seeds, place(config, self.spec, self.env))

    def _start(self, out: str | Path | None) -> Session:
        members = self._fleet(self.config)
        if self.learners is not None:
            lanes = members.learners
            for s, learner in enumerate(self.learners):
                members.put(lanes, s, learner)
            members.learners = lanes
        return Session(members, self.config, Run.create(Path(out), self.config, noted(self.env, self.spec)) if out else None)

    def learn(
        self, total_timesteps: int, callback: Callback | None = None, progress_bar: bool = False, out: str | Path | None = None
    ) -> "Model":
        """Train every seed for `total_timesteps` more steps; in pieces or at once is the same. `out`: a new run directory."""
        if out and self.session:
            raise Refusal("out can be given only when learning begins")
        self.session = self.session or self._start(out)
        target = max(self.session.fleet.n, 0) + total_timesteps
        if self.session.run:
            self.config = dataclasses.replace(self.config, total_timesteps=target, epochs=0)
            self.session.run.write_config(self.config)
        self.summary = self.session.train(target, shown if progress_bar else silent, callback)
        return self

    def learner(self, seed: int | None = None) -> Learner:
        """The parameters of one seed, the first by default."""
        if seed is not None and seed not in self.config.seeds:
            raise Refusal(f"there is no agent of seed {seed}; seeds: {', '.join(map(str, self.config.seeds))}")
        s = self.config.seeds.index(seed) if seed is not None else 0
        if self.session:
            return self.session.fleet.of(self.session.fleet.learners, s)
        if self.learners is None:
            self.learners = [jax.jit(self.agent.init)(jnp.uint32(seed)) for seed in self.config.seeds]
        return self.learners[s]

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False, seed: int | None = None
    ) -> tuple[Any, Any]:
        """(action, state) for one observation or a batch of them.

        Not deterministic means a share `epsilon_end` of random actions, or, for actor-critics, actions drawn from the policy.
        """
        stack = () if self.config.frame_stack == 1 else (self.config.frame_stack,)
        obs = np.asarray(observation, self.spec.dtype)
        single = obs.shape == (*self.spec.shape, *stack)
        batch = obs[None] if single else obs
        if batch.shape[1:] != (*self.spec.shape, *stack):
            raise Refusal(f"observations of {self.spec.name} have shape {(*self.spec.shape, *stack)}, got {obs.shape}")
        learner = self.learner(seed)
        if deterministic or not self.spec.continuous:
            actions = np.asarray(self._greedy(learner, batch, jax.random.key(0)))
        else:
            keys = self._rng.integers(0, 2**32, (len(batch), 2), np.uint32)
            actions = np.asarray(self._drawn(learner, batch, keys))
        if not deterministic and not self.spec.continuous:
            explore = self._rng.random(len(batch)) < self.config.epsilon_end
            actions = np.where(explore, self._rng.integers(0, self.spec.actions, len(batch)), actions)
        actions = self.spec.outside(actions)
        return (actions[0] if single else actions), state

    def playing(self, policy: str) -> "Model":
        """The same agents, evaluated by another `eval_policy`: mean, first, last, or the number of a member."""
        refuse_unread(self.config.algorithm, self.config.bellman, ["eval_policy"])
        other = Model(dataclasses.replace(self.config, eval_policy=policy), self.env or self.spec, *self._made_of)
        other.learners = [self.learner(seed) for seed in self.config.seeds]
        return other

    def evaluate(self, episodes: int = 10) -> dict[int, Evaluation]:
        """Greedy episodes of every seed on environments of their own."""
        least = self.config.n_step + self.config.frame_stack + 2
        small = dataclasses.replace(self.config, buffer_size=least, learning_starts=least, eval_episodes=episodes, replay="device")
        members = self._fleet(small)
        lanes = members.learners
        for s, seed in enumerate(self.config.seeds):
            members.put(lanes, s, self.learner(seed))
        members.learners = lanes
        try:
            return dict(zip(self.config.seeds, members.evaluate(), strict=True))
        finally:
            members.close()

    def save(self, path: str | Path) -> Path:
        """One safetensors file with all seeds and the configuration; nothing in it is code."""
        path = _suffixed(Path(path))
        learners = {f"seed-{seed}": self.learner(seed) for seed in self.config.seeds}
        about = {"format": FORMAT, "config": dataclasses.asdict(self.config), "spec": self.spec._asdict()}
        with in_place_of(path) as place:
            place.write_bytes(safetensors.numpy.save(checkpoint.named(learners), {"iterq": json.dumps(about)}))
        return path

    def close(self) -> None:
        """Let go of environments and the run directory."""
        if self.session:
            self.session.close()


def _suffixed(path: Path) -> Path:
    return path if path.suffix == ".safetensors" else path.with_name(f"{path.name}.safetensors")


def load(path: str | Path, env: Any = None, network: Mapping[str, Any] | None = None, optimiser: Any = None) -> Model:
    """The model in a file of `save`, or of the newest checkpoint in a run directory. Without `env` it can predict, not learn."""
    path = Path(path)
    if path.is_dir():
        from iterq.store import known_as, read_config

        config = read_config(path)
        found = checkpoint.newest(path, known_as(path, config))
        if found is None:
            raise Refusal(f"{path} has no checkpoint yet")
        model = Model(config, env or config.env, network, optimiser)
        arrays = {}
        for seed in config.seeds:
            state = safetensors.numpy.load_file(found.folder / f"seed-{seed}.safetensors")
            arrays |= {f"seed-{seed}.{name[8:]}": x for name, x in state.items() if name.startswith("learner.")}
        return _filled(model, arrays, path)
    if not path.is_file() and _suffixed(path).is_file():
        path = _suffixed(path)
    try:
        with safetensors.safe_open(path, "np") as file:
            about = json.loads(file.metadata()["iterq"])
        if about["format"] != FORMAT:
            raise Refusal(f"{path} has format {about['format']}; this version of iterq reads format {FORMAT}")
        known: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in about["spec"].items()}
        spec = Spec(**known)
        config = config_from(about["config"])
        arrays = safetensors.numpy.load_file(path)
    except OSError as error:
        raise Refusal(f"cannot read {path}: {error.strerror or error}") from error
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refusal(f"{path} is no model of iterq, or damaged: {error}") from error
    return _filled(Model(config, env or spec, network, optimiser), arrays, path)


def _filled(model: Model, arrays: dict[str, np.ndarray], path: Path) -> Model:
    like = jax.eval_shape(lambda: bare({f"seed-{seed}": model.agent.init(jnp.uint32(seed)) for seed in model.config.seeds}))
    learners = checkpoint.fill(jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), like), arrays, str(path))
    model.learners = [learners[f"seed-{seed}"] for seed in model.config.seeds]
    return model


def make(
    algorithm: str, env: Any, preset: str | None = None, network: Mapping[str, Any] | None = None, optimiser: Any = None, **fields: Any
) -> Model:
    """A new model: an algorithm by name, on a Gymnasium id, an environment object or a function that makes one.

    fields: of the configuration, in our names or those of Dopamine, CleanRL and Stable-Baselines3.
    """
    if not isinstance(fields.get("seeds", ()), tuple):
        fields["seeds"] = tuple(range(fields["seeds"])) if isinstance(fields["seeds"], int) else tuple(fields["seeds"])
    return Model(configure(algorithm, preset or preset_for(algorithm, env), **fields), env, network, optimiser)


def _preset(algorithm: str) -> Any:
    def build(*args: Any, **fields: Any) -> Model:
        # Stable-Baselines3 names a policy first; the network follows from the environment here.
        env = args[-1] if args else fields.pop("env", None)
        if env is None:
            raise Refusal("an environment is missing: give a Gymnasium id, an environment, or a function that makes one")
        return make(algorithm, env, **fields)

    build.__doc__ = f'`make("{algorithm}", env, …)`'
    return build


DQN, IDQN, DoubleDQN = _preset("dqn"), _preset("i-dqn"), _preset("double-dqn")
QRDQN, IQRDQN, C51, IC51 = _preset("qr-dqn"), _preset("i-qr-dqn"), _preset("c51"), _preset("i-c51")
IQN, IIQN, BootstrappedDQN = _preset("iqn"), _preset("i-iqn"), _preset("bootstrapped-dqn")
SAC, ISAC, DroQ, IDroQ = _preset("sac"), _preset("i-sac"), _preset("droq"), _preset("i-droq")
