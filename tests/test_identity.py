"""What a run is: settings that change its numbers and differ from what was done before they existed."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iterq import cli, identity
from iterq.config import FIELDS, Config
from iterq.errors import Refusal
from iterq.presets import ALGORITHMS, configure
from iterq.reads import unread
from iterq.store import config_from, config_hash

# Written down once; a run keeps its identity for ever.
KNOWN = {
    "dqn": "e9587d11c0ad2666",
    "i-dqn": "dc21177f6ea6a760",
    "i-sac": "35fe39436a63a9b1",
}


def test_every_setting_has_a_neutral_value():
    assert set(identity.NEUTRAL) == set(FIELDS)
    assert set(FIELDS) >= identity.FREE


@pytest.mark.parametrize(("algorithm", "expected"), KNOWN.items())
def test_an_identity_is_the_same_for_ever(algorithm, expected):
    settings = dataclasses.asdict(configure(algorithm, env="CartPole-v1", seeds=(0, 1)))
    assert identity.identity(settings)[:16] == expected


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_new_setting_orphans_nothing(algorithm, monkeypatch):
    """Whatever the default of the new setting is: what a directory does not mention is neutral."""
    settings = dataclasses.asdict(configure(algorithm))
    before = identity.identity(settings)
    monkeypatch.setattr(identity, "NEUTRAL", {**identity.NEUTRAL, "wings": 2})
    assert identity.identity(settings) == identity.identity({**settings, "wings": 2}) == before
    assert identity.identity({**settings, "wings": 3}) != before
    assert identity.settings_in(settings)["wings"] == 2


@pytest.mark.parametrize("name", sorted(identity.FREE - {"algorithm"}))
def test_length_and_logs_are_free(name):
    config = configure("i-dqn")
    words = {"replay": "device", "log_style": "cleanrl", "eval_policy": "first", "eval_starts": "same", "wandb": "x"}
    now = getattr(config, name)
    changed = dataclasses.replace(config, **{name: words[name] if name in words else not now if isinstance(now, bool) else now + 1})
    assert changed != config
    assert config_hash(changed) == config_hash(config)


def test_what_changes_numbers_changes_the_identity():
    config = configure("i-dqn")
    for change in ({"gamma": 0.98}, {"K": 4}, {"seeds": (1,)}, {"reduce": "sum"}, {"acting": "last"}, {"env": "Acrobot-v1"}):
        assert config_hash(dataclasses.replace(config, **change)) != config_hash(config), change


def test_two_words_for_one_thing_are_one_identity():
    config = configure("i-dqn")
    assert config_hash(dataclasses.replace(config, reduce="mean")) == config_hash(config)
    assert config_hash(dataclasses.replace(config, gamma=1)) == config_hash(dataclasses.replace(config, gamma=1.0))
    one = dataclasses.replace(config, K=1)
    assert len({config_hash(dataclasses.replace(one, reduce=word)) for word in ("auto", "mean", "sum")}) == 1
    soft = configure("i-sac")
    assert config_hash(dataclasses.replace(soft, dropout_masks="shared")) == config_hash(soft)  # without dropout
    assert config_hash(dataclasses.replace(soft, dropout_masks="shared", dropout=0.1)) != config_hash(
        dataclasses.replace(soft, dropout=0.1)
    )
    # i-DQN has no atoms and no dropout
    assert config_hash(dataclasses.replace(config, atoms=7, dropout=0.5)) == config_hash(config)


@given(st.dictionaries(st.sampled_from(sorted(identity.NEUTRAL)), st.none(), max_size=20))
def test_what_a_directory_does_not_mention_is_neutral(gone):
    settings = {name: value for name, value in dataclasses.asdict(Config()).items() if name not in gone}
    found = config_from(json.loads(json.dumps(identity.document(settings))))
    for name, neutral in identity.NEUTRAL.items():
        assert getattr(found, name) == (neutral if name in gone else settings[name])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_option_that_an_algorithm_does_not_read_is_refused(algorithm, tmp_path):
    bellman = ALGORITHMS[algorithm].values["bellman"]
    assert unread(bellman)
    for name in sorted(unread(bellman)):
        value, option = getattr(Config(), name), name.replace("_", "-")
        with pytest.raises(Refusal, match=f"{algorithm} does not read {name}"):
            configure(algorithm, **{name: value})
        said = [f"--{option}", str(value)]
        if isinstance(value, bool):
            said = [f"--{option}" if value else f"--no-{option}"]
        env = "Pendulum-v1" if bellman == "soft" else "CartPole-v1"
        with pytest.raises(Refusal, match=f"{algorithm} does not read {name}"):
            cli.command(["train", algorithm, "--env", env, *said, "--out", str(tmp_path / "run")])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("algorithm", ["i-sac", "i-droq"])
def test_actor_critics_from_before_they_read_how_to_reduce_go_on_with_the_sum(algorithm):
    now = dataclasses.asdict(configure(algorithm, reduce="mean"))
    assert config_from(now).reduce == "mean"
    then = {name: value for name, value in now.items() if name not in ("actor_member", "dropout_masks")}
    assert config_from(then).reduce == "auto"
    assert config_from(then).dropout_masks == "shared"
    assert config_from({**then, "bellman": "dqn"}).reduce == "mean"
