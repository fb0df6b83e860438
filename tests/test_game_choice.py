"""What others have published on Atari, and whether 20 games tell what 55 tell."""

import json

import numpy as np
import pytest

from iterq import cli
from iterq.errors import Refusal
from iterq.games import references
from iterq.report.published import AGENTS, published
from iterq.report.stats import Estimate, estimate
from iterq.reproduce.game_choice import Config, run, within


def test_published_curves_go_by_any_id_of_a_game():
    found = published("DQN", "ALE/Breakout-v5")
    assert found.curve.steps.tolist() == [250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000, 25_000_000, 49_750_000]
    assert found.curve.values.tolist() == [[1.791, 6.519, 18.864, 46.897, 85.827, 103.658, 139.696, 186.118]]
    assert (found.deviation, found.runs, found.curve.seeds) == (18.541, 5, ["mean of 5"])
    for name in ("Breakout", "breakout", "BreakoutNoFrameskip-v4"):
        np.testing.assert_array_equal(published("DQN", name).curve.values, found.curve.values)
    assert published("Rainbow", "Up_N_Down").deviation == published("Rainbow", "UpNDown").deviation
    assert published("IQN", "Breakout").curve.values[0, -1] == 79.475
    assert published("IQN", "Breakout", again=True).curve.values[0, -1] == 91.49
    for agent, game in (("PPO", "Pong"), ("DQN", "Chess"), ("DQN", "CartPole-v1")):
        with pytest.raises(Refusal, match=f"nothing on {agent} and {game}; it has DQN, Rainbow, IQN"):
            published(agent, game)


def test_every_game_with_a_human_score_is_published_without_intervals_between_runs():
    assert len(references()) == 55
    for agent in AGENTS:
        for game in references():
            for again in (False, True):
                found = published(agent, game, again)
                assert np.isfinite(found.curve.values).all()
                assert found.deviation >= 0
                line = estimate([found.curve.values])
                np.testing.assert_array_equal(line.low, line.high)


def test_20_games_tell_what_55_tell(tmp_path):
    result = run(Config(draws=500), tmp_path)
    ours = {q.name: q for q in result.quantities}
    # Recomputed by others from the same table, with other draws
    known = {"DQN": (1.38, 1.34), "Rainbow": (1.68, 1.69), "IQN": (1.88, 1.75)}
    for agent, scores in known.items():
        assert [ours[f"{agent}: IQM over {n} games"].ours for n in (20, 55)] == pytest.approx(scores, abs=0.02)
    assert result.passed
    assert {q.passed for q in result.quantities if q.band} == {True}
    assert {q.passed for q in result.quantities if not q.band} == {None}
    (tmp_path / "again").mkdir()
    run(Config(draws=500), tmp_path / "again")
    assert (tmp_path / "again" / "game_choice.csv").read_bytes() == (tmp_path / "game_choice.csv").read_bytes()


def test_a_narrower_margin_is_not_met_or_cannot_be_told(tmp_path):
    ours = {q.name: q.passed for q in run(Config(draws=500, margin=0.1), tmp_path).quantities}
    assert ours["IQN: 20 games minus 55 games"] is None
    ours = {q.name: q.passed for q in run(Config(draws=500, margin=0.01), tmp_path).quantities}
    assert ours["IQN: 20 games minus 55 games"] is False
    assert ours["DQN: IQM over 20 games"] is False
    cases = {(-0.1, 0.1): True, (-0.3, 0.1): None, (0.1, 0.3): None, (-0.3, 0.3): None, (0.21, 0.4): False, (-0.4, -0.21): False}
    for (low, high), equal in cases.items():
        assert within(Estimate(np.array((low + high) / 2), np.array(low), np.array(high)), 0, 0.2) is equal


def test_the_list_of_20_is_said_to_be_inferred(tmp_path, capsys):
    assert cli.command(["reproduce", "game-choice", "--scale", "smoke", "--out", str(tmp_path / "out"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"game_choice.csv", "summary.png", "summary.pdf"} <= set(found["files"])
    note = next(note for note in found["notes"] if "inferred" in note)
    assert "Breakout, DemonAttack, ChopperCommand, Krull are in the list; Asteroids, Asterix, Qbert, CrazyClimber are not" in note
    with pytest.raises(Refusal, match="--margin positive"):
        cli.command(["reproduce", "game-choice", "--margin", "0", "--out", str(tmp_path / "x")])
