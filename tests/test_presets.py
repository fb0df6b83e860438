"""Named settings: complete, sourced, and reachable under the names of other libraries, from Python and from the command line."""

import dataclasses
import json

import pytest

from iterq import cli, options
from iterq.config import FIELDS, Config
from iterq.dialects import ALIASES, translate
from iterq.errors import Refusal
from iterq.presets import ALGORITHMS, PRESETS, configure

# ecosystem.md, section D: (whose, their name, a value as a word, our field, its value)
DIALECTS = [
    ("Dopamine", "target_update_period", "8000", "T", 8000),
    ("Dopamine", "update_period", "8", "G", 8),
    ("Dopamine", "update_horizon", "3", "n_step", 3),
    ("Dopamine", "min_replay_history", "2000", "learning_starts", 2000),
    ("Dopamine", "max_capacity", "70000", "buffer_size", 70_000),
    ("Dopamine", "epsilon_train", "0.01", "epsilon_end", 0.01),
    ("Dopamine", "epsilon_decay_period", "250000", "epsilon_decay", 250_000),
    ("Dopamine", "num_iterations", "20", "epochs", 20),
    ("CleanRL", "total_timesteps", "5000", "total_timesteps", 5000),
    ("CleanRL", "target_network_frequency", "700", "T", 700),
    ("CleanRL", "train_frequency", "10", "G", 10),
    ("CleanRL", "learning_starts", "2000", "learning_starts", 2000),
    ("CleanRL", "buffer_size", "70000", "buffer_size", 70_000),
    ("CleanRL", "end_e", "0.02", "epsilon_end", 0.02),
    ("CleanRL", "env_id", "Acrobot-v1", "env", "Acrobot-v1"),
    ("CleanRL", "seed", "3", "seeds", (3,)),
    ("CleanRL", "wandb_project_name", "poles", "wandb", "poles"),
    ("SB3", "target_update_interval", "700", "T", 700),
    ("SB3", "train_freq", "8", "G", 8),
    ("SB3", "n_steps", "3", "n_step", 3),
    ("SB3", "exploration_final_eps", "0.02", "epsilon_end", 0.02),
    ("SB3", "tau", "0.5", "tau", 0.5),
    ("SB3", "gamma", "0.9", "gamma", 0.9),
    ("SB3", "batch_size", "16", "batch_size", 16),
    ("SB3", "learning_rate", "0.001", "learning_rate", 0.001),
    ("authors", "target_update_frequency", "700", "T", 700),
    ("authors", "target_sync_frequency", "20", "D", 20),
    ("authors", "n_networks", "7", "K", 7),
    ("authors", "bellman_iterations_scope", "7", "K", 7),
    ("authors", "n_initial_samples", "2000", "learning_starts", 2000),
    ("authors", "replay_buffer_capacity", "70000", "buffer_size", 70_000),
    ("authors", "epsilon_end", "0.02", "epsilon_end", 0.02),
    ("authors", "n_epochs", "20", "epochs", 20),
    ("authors", "epsilon_duration", "900", "epsilon_decay", 900),
    ("paper", "target_sync_period", "20", "D", 20),
    ("paper", "num_bellman_updates", "7", "K", 7),
    ("ours", "replay_capacity", "70000", "buffer_size", 70_000),
]


def parsed(*words) -> Config:
    """The configuration that `iterq train dqn words…` comes to, without training."""
    config = configure("dqn", env="CartPole-v1")
    return options.tyro_cli("iterq train dqn", "", config, options.renamed([str(word) for word in words]), {"preset": "classic"}).config


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_goes_with_every_preset(algorithm, preset):
    config = configure(algorithm, preset)
    assert config.algorithm == algorithm
    for name, value in ALGORITHMS[algorithm].values.items():
        assert getattr(config, name) == value
    values = {**PRESETS[preset].values, **PRESETS[preset].special.get(algorithm, {})}
    for name in set(values) - set(ALGORITHMS[algorithm].values):
        assert getattr(config, name) == values[name]
    assert (config.K > 1) == (algorithm.startswith("i-") or algorithm == "bootstrapped-dqn")
    json.dumps(dataclasses.asdict(config), allow_nan=False)


@pytest.mark.parametrize("kind", [ALGORITHMS, PRESETS], ids=["algorithms", "presets"])
def test_every_value_of_a_preset_has_a_source(kind):
    for name, preset in kind.items():
        assert preset.about, name
        assert preset.values.keys() == preset.source.keys(), name
        assert set(preset.values) <= set(FIELDS), name
        assert all(source.strip() for source in preset.source.values()), name


def test_what_the_user_says_comes_before_the_algorithm_and_the_preset():
    config = configure("i-iqn", K=9, n_step=1, T=77)
    assert (config.K, config.n_step, config.T, config.bellman) == (9, 1, 77, "iqn")


@pytest.mark.parametrize(("whose", "name", "word", "field", "value"), DIALECTS, ids=[f"{d[0]}-{d[1]}" for d in DIALECTS])
def test_other_libraries_names_are_understood(whose, name, word, field, value):
    assert getattr(configure("dqn", **{name: value[0] if name == "seed" else value}), field) == value
    option = f"--{name.replace('_', '-')}"
    for words in ([option, word], [f"{option}={word}"], [f"--{name}", word], [f"--{name}={word}"]):
        assert getattr(parsed(*words), field) == value, words


def test_every_alias_is_tested_here_or_is_a_spelling():
    lengths = {"training_steps", "n_training_steps_per_epoch"}  # of epochs, which go with their number; see below
    assert set(ALIASES) - {name for _, name, *_ in DIALECTS} == {"prioritized", *lengths}
    assert configure("dqn", prioritized=True).prioritised is True


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"exploration_fraction": 0.1, "total_timesteps": 5000}, {"total_timesteps": 5000, "epsilon_decay": 500}),
        ({"num_iterations": 20, "training_steps": 300}, {"epochs": 20, "epoch_steps": 300}),
        ({"n_epochs": 4, "n_training_steps_per_epoch": 500}, {"epochs": 4, "epoch_steps": 500}),
        (
            {"num_iterations": 20, "training_steps": 300, "exploration_fraction": 0.5},
            {"epochs": 20, "epoch_steps": 300, "epsilon_decay": 3000},
        ),
        ({"epochs": 20, "epoch_steps": 300, "exploration_fraction": 0.5}, {"epochs": 20, "epoch_steps": 300, "epsilon_decay": 3000}),
    ],
)
def test_values_that_make_one_of_ours(given, expected):
    assert translate(given) == expected
    pairs = [(f"--{name.replace('_', '-')}", value) for name, value in given.items()]
    apart = parsed(*(word for pair in pairs for word in pair))
    joined = parsed(*(f"{name}={value}" for name, value in reversed(pairs)))
    for name, value in expected.items():
        assert getattr(apart, name) == getattr(joined, name) == value


def refused_both_ways(given, message):
    with pytest.raises(Refusal, match=message):
        configure("dqn", **given)
    with pytest.raises(Refusal, match=message):
        parsed(*(word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", value)))
    with pytest.raises(Refusal, match=message):
        parsed(*(f"--{name}={value}" for name, value in given.items()))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"update_to_data": 4}, "update_to_data is ambiguous: it means G in i-DQN and 1/G in Gi-DQN; say G"),
        ({"exploration_fraction": 0.1}, "exploration_fraction needs total_timesteps"),
        ({"exploration_fraction": "half", "total_timesteps": 100}, "exploration_fraction must be a number, got 'half'"),
        ({"exploration_fraction": "nan", "total_timesteps": 100}, "exploration_fraction must be a number, got 'nan'"),
        ({"exploration_fraction": 0.1, "total_timesteps": "many"}, "total_timesteps must be a number, got 'many'"),
        ({"exploration_fraction": 0.1, "total_timesteps": 100, "epsilon_duration": 5}, "excludes epsilon_decay"),
        ({"exploration_fraction": 0.1, "num_iterations": 3}, "needs total_timesteps, or epochs and epoch_steps"),
        ({"exploration_fraction": 0.1, "num_iterations": "x", "training_steps": 3}, "epochs must be a number, got 'x'"),
    ],
)
def test_what_cannot_be_translated_is_refused(given, message):
    refused_both_ways(given, message)


@pytest.mark.parametrize(
    "given",
    [
        {"T": 500, "target_update_period": 600},
        {"target_update_period": 600, "T": 500},
        {"train_freq": 4, "train_frequency": 8},
        {"seeds": (0,), "seed": 1},
        {"env": "CartPole-v1", "env_id": "Acrobot-v1"},
    ],
)
def test_a_field_said_under_two_names_is_refused(given):
    name = list(given)[1]
    with pytest.raises(Refusal, match=f"{name} says {ALIASES.get(name, name)} a second time"):
        translate(given)
    words = {name: 3 if name == "seeds" else value for name, value in given.items()}
    for style in (
        [word for name, value in words.items() for word in (f"--{name.replace('_', '-')}", value)],
        [f"--{name}={value}" for name, value in words.items()],
    ):
        with pytest.raises(Refusal, match=f"{name.replace('_', '.')} says {ALIASES.get(name, name)} a second time"):
            parsed(*style)


def test_of_an_option_said_twice_under_one_name_the_last_counts():
    # As with every other command, so that a script may append to its arguments.
    assert parsed("--T", 50, "--T=60").T == 60
    assert parsed("--train-freq", 50, "--train-freq=60").G == 60
    assert parsed("--total-timesteps", 50, "--total-timesteps=60").total_timesteps == 60


@pytest.mark.parametrize(
    ("word", "nearest"),
    [
        ("gama", "gamma"),
        ("learning_rat", "learning_rate"),
        ("target_update_perod", "target_update_period"),
        ("num_iteration", "num_iterations"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest(word, nearest):
    with pytest.raises(Refusal, match=f"unknown option '{word}', did you mean '{nearest}'"):
        configure("dqn", **{word: 1})
    dashed = f"--{word.replace('_', '-')}"
    for words in ([dashed, 1], [f"{dashed}=1"]):
        with pytest.raises(Refusal, match=f"unknown option '{dashed}', did you mean '--{nearest.replace('_', '-')}'"):
            parsed(*words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--train-freq"], "--train-freq needs a value"),
        (["--train-freq", "--gamma", "0.9"], "--train-freq needs a value"),
        (["--total-timesteps"], "--total-timesteps needs a value"),
        (["--seed", "abc"], "'abc-abc' is not a list|abc"),
        (["--seed=-1"], "-1"),
        (["--gamma", "much"], "much"),
        (["--gamma"], "gamma"),
        (["--K", "2.5"], "2.5"),
        (["stray"], "stray"),
    ],
)
def test_words_that_make_no_sense_are_refused(words, message):
    with pytest.raises(Refusal, match=message):
        parsed(*words)


def test_flags_and_lists():
    config = parsed("--no-shared", "--features", 16, 8, "--clip-rewards", "--seeds", "3,5", "--v-min", "-3.5")
    assert (config.shared, config.features, config.clip_rewards, config.seeds, config.v_min) == (False, (16, 8), True, (3, 5), -3.5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["dqm"], "unknown algorithm 'dqm', did you mean 'dqn'"),
        (["dqn", "--preset", "clasic", "--env", "CartPole-v1"], "unknown preset 'clasic', did you mean 'classic'"),
        (["dqn", "--preset=clasic", "--env", "CartPole-v1"], "unknown preset 'clasic', did you mean 'classic'"),
        (["dqn"], "--env is missing"),
        (["dqn", "--env="], "--env is missing"),
    ],
)
def test_names_that_are_not_known_are_refused(words, message):
    with pytest.raises(Refusal, match=message):
        cli.command(["train", *words])


@pytest.mark.parametrize(("call", "message"), [(("dqm",), "did you mean 'dqn'"), (("dqn", "clasic"), "did you mean 'classic'")])
def test_names_that_are_not_known_are_refused_from_python(call, message):
    with pytest.raises(Refusal, match=message):
        configure(*call)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        *(({name: 0}, f"{name} must be at least 1, got 0") for name in ("total_timesteps", "K", "T", "D", "G", "quantiles", "batch_size")),
        *(({name: 0}, f"{name} must be at least 1, got 0") for name in ("n_step", "frame_stack", "eval_episodes", "log_every")),
        *(({name: -1}, f"{name} must be at least 0, got -1") for name in ("epsilon_decay", "eval_every", "checkpoint_every")),
        ({"atoms": 1}, "atoms must be at least 2, got 1"),
        *(({name: 1.5}, rf"{name} must lie in \[0, 1\], got 1.5") for name in ("gamma", "tau", "epsilon_end")),
        *(({name: -0.1}, rf"{name} must lie in \[0, 1\], got -0.1") for name in ("gamma", "tau", "epsilon_end")),
        ({"gamma": float("nan")}, r"gamma must lie in \[0, 1\], got nan"),
        *(({name: 0.0}, f"{name} must be a positive number, got 0.0") for name in ("learning_rate", "adam_epsilon", "kappa")),
        *(({name: float("inf")}, f"{name} must be a positive number, got inf") for name in ("learning_rate", "adam_epsilon", "kappa")),
        ({"learning_rate": float("nan")}, "learning_rate must be a positive number, got nan"),
        *(({n: "red"}, f"{n} must be one of .*, got 'red'") for n in ("reduce", "acting", "replay", "eval_policy", "log_style")),
        ({"tau": 0.0}, "tau = 0 would never move the target"),
        ({"T": 3, "G": 4}, "T = 3 is shorter than G = 4"),
        ({"seeds": ()}, "seeds must be different integers"),
        ({"seeds": (1, 1)}, "seeds must be different integers"),
        ({"seeds": (-1,)}, "seeds must be different integers"),
        ({"seeds": (2**32,)}, "seeds must be different integers"),
        ({"features": (8, 0)}, "features must be sizes of at least 1"),
        ({"v_min": 1.0, "v_max": 1.0}, "v_min = 1.0 must be below v_max = 1.0"),
        ({"buffer_size": 3}, "buffer_size and learning_starts must be at least 4"),
        ({"learning_starts": 3}, "buffer_size and learning_starts must be at least 4"),
        ({"learning_starts": 7, "n_step": 4, "frame_stack": 2}, "must be at least 8 with n_step = 4, frame_stack = 2"),
        ({"prioritised": True, "replay": "host"}, "prioritised replay lives on the device"),
        ({"T": "soon"}, "T must be int, got 'soon'"),
        ({"seeds": 3}, "seeds must be integers, got 3"),
    ],
)
def test_a_configuration_without_meaning_is_refused(fields, message):
    reader = {"quantiles": "iqn", "kappa": "iqn", "atoms": "c51", "v_min": "c51"}.get(next(iter(fields)), "dqn")
    with pytest.raises(Refusal, match=message):
        configure(reader, **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"gamma": 0.0},
        {"gamma": 1.0},
        {"tau": 0.005},
        {"epsilon_end": 0.0, "epsilon_decay": 0},
        {"seeds": (2**32 - 1, 0)},
        {"features": ()},
        {"T": 4, "G": 4},
        {"buffer_size": 4, "learning_starts": 4},
        {"eval_every": 0, "checkpoint_every": 0},
        {"prioritised": True, "replay": "device"},
    ],
)
def test_the_limits_themselves_are_allowed(fields):
    config = configure("dqn", **fields)
    assert all(getattr(config, name) == value for name, value in fields.items())


def test_where_no_window_shifts_G_may_be_as_long_as_it_likes():
    assert configure("sac", G=300).G == configure("dqn", tau=0.1, G=300).G == 300
