"""What a window costs, as XLA counts it."""

import pytest

from iterq.reproduce.cost import Config, measure, run


def test_torso_passes_and_actions_do_not_grow_with_the_window():
    config = Config(K_dqn=(1, 3), repeats=1)
    one, three = (measure("i-dqn", K, config) for K in (1, 3))
    # A member more is a head more: its values of a batch and of the next frames, and the two products of its gradient.
    head = 7744 * 512 + 512 * 4
    more = (three.update_flops - one.update_flops) / 2
    assert 4 * 2 * 32 * head < more < 1.4 * 4 * 2 * 32 * head
    assert three.action_flops == pytest.approx(one.action_flops, rel=1e-3)
    # 32 filters of 8 × 8 × 4, 64 of 4 × 4 × 32, 64 of 3 × 3 × 64, and the head with its biases
    torso = (8 * 8 * 4 + 1) * 32 + (4 * 4 * 32 + 1) * 64 + (3 * 3 * 64 + 1) * 64
    assert (one.parameters, three.parameters) == (torso + head + 516, torso + 3 * (head + 516))
    # Online, anchor and two moments; a window also keeps its frozen targets.
    assert one.megabytes == pytest.approx(4 * 4 * one.parameters / 1e6, rel=0.01)
    frozen = torso + 2 * (head + 516)
    assert three.megabytes == pytest.approx(4 * (3 * three.parameters + one.parameters + frozen) / 1e6, rel=0.01)


def test_the_table_has_a_row_per_window(tmp_path):
    result = run(Config(K_dqn=(1, 2), K_iqn=(1,), K_sac=(1,), K_droq=(1, 2), batch_size=2, repeats=1), tmp_path)
    assert len((tmp_path / "cost.csv").read_text().splitlines()) == 7
    assert [q.name.partition(":")[0] for q in result.quantities] == ["i-dqn, K = 2"] * 4 + ["i-droq, K = 2"] * 4
