"""The configuration of a training run, and how lists of numbers are written on the command line, for every command alike."""

import dataclasses
from typing import Annotated, Literal

from tyro.constructors import PrimitiveConstructorSpec

from iterq.errors import Refusal


def integers(text: str, what: str) -> tuple[int, ...]:
    """`0,3,7` and `0-4` and mixtures of them, without repetitions, in the order given."""
    numbers: list[int] = []
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise Refusal(f"{what}: {text!r} is not a list of non-negative integers such as 0,3,7 or 0-4")
        numbers += range(int(low), int(high if dash else low) + 1)
    if not numbers:
        raise Refusal(f"{what}: {text!r} names nothing")
    return tuple(dict.fromkeys(numbers))


def seeds(text: str) -> tuple[int, ...]:
    """A count (`5`), a range (`0-4`) or a list (`0,3,7`)."""
    if text.strip().isdecimal():
        if int(text) < 1:
            raise Refusal(f"--seeds: {text} is not a count of at least 1")
        return tuple(range(int(text)))
    return integers(text, "--seeds")


def window_sizes(text: str) -> tuple[int, ...]:
    """One window size (`5`) or several (`1,4,7`)."""
    return integers(text, "--K")


def _spec(parse, metavar: str) -> PrimitiveConstructorSpec:
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: parse(words[0]),
        is_instance=lambda x: isinstance(x, tuple),
        str_from_instance=lambda x: [",".join(map(str, x))],
    )


Seeds = Annotated[tuple[int, ...], _spec(seeds, "COUNT|A-B|A,B")]
WindowSizes = Annotated[tuple[int, ...], _spec(window_sizes, "K|A,B")]


@dataclasses.dataclass(frozen=True)
class Config:
    """One training run. Steps are environment steps of one agent (agent steps); a reset takes a step of its own."""

    algorithm: str = "dqn"
    """The name of the preset this configuration started from; of no further effect."""
    env: str = "CartPole-v1"
    """A Gymnasium id, MODULE:ID to import MODULE first, or jax/NAME for an environment that runs on the device."""
    seeds: Seeds = (0,)
    """One agent per seed, side by side in one program."""
    total_timesteps: int = 100_000
    """Steps of every agent. Where `epochs` are given, these say when a run ends."""
    epochs: int = 0
    """End when every agent has so many epochs, each at least `epoch_steps` long and to the end of an episode; 0: at total_timesteps."""
    epoch_steps: int = 250_000
    """Environment steps of an epoch, at least."""

    bellman: str = "dqn"
    """The base algorithm: dqn, double-dqn, qr-dqn, c51, iqn, soft (actor-critics), or MODULE:NAME of your own Bellman (over one value
    per action)."""
    K: int = 1
    """Bellman updates learned at once; 1 is the base algorithm."""
    T: int = 200
    """Steps between two shifts of the window; at K = 1 the period of the target network."""
    D: int = 30
    """Steps between two syncs of the window's targets, of the environment as in Algorithm 1 (the paper's text once says gradient steps)."""
    G: int = 2
    """Steps between two gradient steps."""
    tau: float = 1.0
    """Below 1 the first target tracks its network at this rate after every gradient step, instead of shifts every T."""
    shared: bool = True
    """Members have all parts of the network but the last in common; otherwise they are independent networks."""
    frozen: bool = True
    """Keep target networks inside the window; otherwise each member learns from the live one before it (D = 1)."""
    consecutive: bool = True
    """Member k learns from member k - 1; otherwise from its own past self (Bootstrapped DQN)."""
    reduce: Literal["auto", "mean", "sum"] = "auto"
    """Of the members' losses; auto is the mean for shared and the sum for independent networks. The mean (the authors' code) divides the
    gradient of every head by K, the sum (Algorithm 1) does not. Adam makes up for a factor of all gradients only where they are large
    beside adam_epsilon: at the paper's 1.5e-4, heads move 1.4 to 2.8 times less far with the mean."""
    acting: Literal["uniform", "first", "last", "episode", "anchor-too"] = "uniform"
    """Which member acts: drawn at every step, the first, the last, drawn at every episode, or drawn at every step with the anchor among
    them, as in the published Atari runs."""
    shifts: Literal["after", "early"] = "after"
    """When a shift is due: all of it after the gradient step, or online networks before and targets after it, as in the published runs."""

    torso: Literal["mlp", "nature", "nature-valid"] = "mlp"
    """Hidden layers only, or after the convolutions of Mnih et al. (2015) with SAME padding (7 744 features) or VALID (3 136)."""
    features: tuple[int, ...] = (120, 84)
    """Sizes of the hidden layers."""
    atoms: int = 51
    """C51: size of the support."""
    v_min: float = -10.0
    """C51: lower end of the support."""
    v_max: float = 10.0
    """C51: upper end of the support."""
    quantiles: int = 64
    """QR-DQN, IQN: quantiles of a return, predicted and of the target."""
    kappa: float = 1.0
    """QR-DQN, IQN: where the Huber loss becomes linear."""

    utd: int = 1
    """Actor-critics: gradient steps of the critics for every one of the actor (update to data)."""
    dropout: float = 0.0
    """Actor-critics: share of a critic's units that is left out, in its targets too (DroQ)."""
    layer_norm: bool = False
    """Actor-critics: normalise the layers of critics (DroQ)."""
    dropout_masks: Literal["own", "shared"] = "own"
    """Actor-critics: every member of a window leaves out units of its own, or all the same ones."""
    actor_reads: Literal["min", "mean"] = "min"
    """Actor-critics: what the actor improves on, of a pair of critics."""
    actor_member: Literal["uniform", "first", "last"] = "uniform"
    """Actor-critics: whose critics the actor improves on: those of a member drawn at every update, of the first, or of the last."""

    learning_rate: float = 1e-3
    """Of Adam."""
    adam_epsilon: float = 1e-8
    """Of Adam."""
    batch_size: int = 128
    """Transitions per gradient step."""
    gamma: float = 0.99
    """Discount."""
    n_step: int = 1
    """Steps of a return before it is bootstrapped."""
    clip_rewards: bool = False
    """Learn from rewards clipped to [-1, 1]; returns are reported as they are."""
    frame_stack: int = 1
    """Frames of an observation."""
    emulator: Literal["fresh", "plain"] = "fresh"
    """Atari: every game begins on a fresh emulator, which makes it a function of its seed and actions, or after the emulator's plain
    reset, as in Dopamine, which lets traces of the game before into some games (such a run may not resume in the middle of a game)."""

    buffer_size: int = 100_000
    """Rows of the replay, one per step."""
    learning_starts: int = 1_000
    """Steps of uniformly random actions before the first gradient step."""
    replay: Literal["auto", "device", "host"] = "auto"
    """Where the replay lives; auto is the device if it fits there."""
    prioritised: bool = False
    """Draw transitions by their last loss, as Rainbow does, rather than uniformly."""
    epsilon_end: float = 0.05
    """Share of random actions after the decay."""
    epsilon_decay: int = 20_000
    """Steps after learning_starts over which random actions go linearly from all to epsilon_end."""

    eval_every: int = 10_000
    """Steps between two evaluations on separate environments, the first at step 0; 0: none."""
    eval_episodes: int = 10
    """Episodes of an evaluation."""
    eval_starts: Literal["varied", "same"] = "varied"
    """Every evaluation plays episodes of its own, or all of them the same ones."""
    eval_policy: str = "mean"
    """Greedy on the mean of the members' values, or on those of one member: first, last, or its number from 1 to K."""
    log_every: int = 1_000
    """Steps between two lines of metrics."""
    log_csae: bool = False
    """Also log the sum of approximation errors along the chain, on a fresh batch."""
    log_style: Literal["sb3", "cleanrl", "dopamine"] = "sb3"
    """Whose names the metrics carry in TensorBoard and Weights & Biases."""
    checkpoint_every: int = 50_000
    """Steps between two checkpoints; 0: only at the end."""
    tensorboard: bool = True
    """Write TensorBoard events."""
    wandb: str = ""
    """Weights & Biases project to log to; empty: none."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value, kinds = getattr(self, field.name), (int, float) if isinstance(field.default, float) else (type(field.default),)
            whole = isinstance(value, tuple) and all(type(x) is int for x in value)
            if (not whole) if isinstance(field.default, tuple) else type(value) not in kinds:
                expected = "integers" if isinstance(field.default, tuple) else kinds[-1].__name__
                raise Refusal(f"{field.name} must be {expected}, got {value!r}")
        for field, low in AT_LEAST.items():
            if not getattr(self, field) >= low:
                raise Refusal(f"{field} must be at least {low}, got {getattr(self, field)}")
        for field in ("gamma", "tau", "epsilon_end"):
            if not 0 <= getattr(self, field) <= 1:
                raise Refusal(f"{field} must lie in [0, 1], got {getattr(self, field)}")
        for field in ("learning_rate", "adam_epsilon", "kappa"):
            if not 0 < getattr(self, field) < float("inf"):
                raise Refusal(f"{field} must be a positive number, got {getattr(self, field)}")
        for field, known in CHOICES.items():
            if getattr(self, field) not in known:
                raise Refusal(f"{field} must be one of {', '.join(known)}, got {getattr(self, field)!r}")
        if self.eval_policy not in (known := ("mean", "first", "last", *map(str, range(1, self.K + 1)))):
            raise Refusal(f"eval_policy must be one of {', '.join(known)}, got {self.eval_policy!r}")
        if not 0 <= self.dropout < 1:
            raise Refusal(f"dropout must lie in [0, 1), got {self.dropout}")
        if self.bellman == "soft" and (self.tau == 1 or self.frozen or self.shared or not self.consecutive or self.prioritised):
            raise Refusal("bellman = soft needs tau < 1, and neither frozen, shared nor prioritised; the algorithm sac says so")
        if self.tau == 0:
            raise Refusal("tau = 0 would never move the target")
        if self.tau == 1 and self.T < self.G:
            raise Refusal(f"T = {self.T} is shorter than G = {self.G}: a window moves at most once per gradient step")
        if not self.seeds or min(self.seeds) < 0 or max(self.seeds) >= 2**32 or len(set(self.seeds)) < len(self.seeds):
            raise Refusal(f"seeds must be different integers from 0 to 2**32 - 1, got {self.seeds}")
        if min(self.features, default=1) < 1:
            raise Refusal(f"features must be sizes of at least 1, got {self.features}")
        if not self.v_min < self.v_max:
            raise Refusal(f"v_min = {self.v_min} must be below v_max = {self.v_max}")
        # A batch can be drawn once two rows start a whole transition: of two rows in a row at most one is a final frame.
        needed = self.n_step + self.frame_stack + 2
        if min(self.buffer_size, self.learning_starts) < needed:
            raise Refusal(
                f"buffer_size and learning_starts must be at least {needed} with n_step = {self.n_step}, frame_stack = {self.frame_stack}"
            )
        if not self.consecutive and (self.acting == "anchor-too" or self.shifts == "early"):
            raise Refusal("acting = anchor-too and shifts = early are for consecutive members")
        if self.tau < 1 and self.shifts == "early":
            raise Refusal("shifts = early needs shifts, which tau < 1 replaces")
        if self.prioritised and self.replay == "host":
            raise Refusal("prioritised replay lives on the device; replay = host cannot have it")


AT_LEAST = {
    **dict.fromkeys(("total_timesteps", "K", "T", "D", "G", "utd", "quantiles", "batch_size", "n_step", "frame_stack"), 1),
    **dict.fromkeys(("eval_episodes", "log_every", "epoch_steps"), 1),
    **dict.fromkeys(("epsilon_decay", "eval_every", "checkpoint_every", "epochs"), 0),
    "atoms": 2,
}
CHOICES = {
    "reduce": ("auto", "mean", "sum"),
    "acting": ("uniform", "first", "last", "episode", "anchor-too"),
    "shifts": ("after", "early"),
    "actor_reads": ("min", "mean"),
    "actor_member": ("uniform", "first", "last"),
    "dropout_masks": ("own", "shared"),
    "emulator": ("fresh", "plain"),
    "eval_starts": ("varied", "same"),
    "replay": ("auto", "device", "host"),
    "torso": ("mlp", "nature", "nature-valid"),
    "log_style": ("sb3", "cleanrl", "dopamine"),
}
FIELDS = tuple(field.name for field in dataclasses.fields(Config))
