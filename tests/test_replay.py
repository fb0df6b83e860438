"""The row store against a naive one that keeps whole episodes, on random streams; on the device and on the host."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iterq import priorities
from iterq.bellman import Transition
from iterq.envs.base import Spec
from iterq.host_replay import HostReplay, from_seen, from_windows
from iterq.replay import (
    Memory,
    answer_bytes,
    below,
    close_row,
    empty,
    gather,
    nbytes,
    observe,
    open_row,
    opened,
    opening_bytes,
    reader,
    record,
    sample,
)

pytestmark = pytest.mark.medium

GAMMA = 0.9


def stream(rng, length, dtype="float32"):
    """Rows as an environment with next-step resets gives them, and the naive truth: for every row its episode and place in it."""
    rows, place, episode = [], [], []
    while len(rows) < length:
        steps = int(rng.integers(1, 8))
        terminates = rng.random() < 0.5
        frames = rng.integers(1, 200, (steps + 1, 2)).astype(dtype)  # never zero, so that padding shows
        for t in range(steps + 1):
            final = t == steps
            reward = 0.0 if final else float(np.float32(rng.normal()))
            rows.append((frames[t], int(rng.integers(0, 3)), reward, terminates and t == steps - 1, t == 0))
            place.append(t)
            episode.append((frames, terminates, steps))
    return rows[:length], place[:length], episode[:length]


def naive(rows, place, episode, i, n, stack):
    """The n-step transition that starts at row i, from whole episodes; None where row i is a final frame."""
    frames, terminates, steps = episode[i]
    t = place[i]
    if t == steps:
        return None
    taken = min(n, steps - t)
    total = sum(GAMMA**l * rows[i + l][2] for l in range(taken))
    discount = 0.0 if terminates and t + taken == steps else GAMMA**taken

    def observation(t):
        if stack == 1:
            return frames[t]
        return np.stack([frames[t - k] if t - k >= 0 else np.zeros_like(frames[0]) for k in reversed(range(stack))], -1)

    return Transition(observation(t), rows[i][1], total, discount, observation(t + taken))


def memory_of(capacity, n, stack, dtype="float32", prioritised=False):
    return Memory(record(Spec("test", (2,), dtype, 3, None)), capacity, n, GAMMA, stack, prioritised)


def jitted(memory):
    opens = jax.jit(lambda replay, i, frame, first: open_row(memory, replay, i, opening_bytes(memory, frame, first)))
    closed = jax.jit(lambda replay, i, action, reward, end: close_row(memory, replay, i, action, answer_bytes(reward, end)))
    return opens, closed


def fill(memory, rows):
    """All rows opened, all but the last closed."""
    opened, closed = jitted(memory)
    replay = empty(memory)
    for i, (frame, action, reward, terminated, first) in enumerate(rows):
        replay = opened(replay, i, frame, first)
        if i < len(rows) - 1:
            replay = closed(replay, i, action, reward, terminated)
    return replay


def fill_host(memory, rows):
    host = HostReplay(memory, 1)
    for i, (frame, action, reward, terminated, first) in enumerate(rows):
        host.open_row(i, frame[None], np.array([first]))
        if i < len(rows) - 1:
            host.close_row(i, np.array([action]), np.array([reward]), np.array([terminated]))
    return host


def valid_starts(memory, place, episode, count):
    """Rows that start a whole stored transition, by looking at every row."""
    oldest = max(0, count - memory.capacity + memory.stack - 1)
    return [i for i in range(oldest, count - memory.n) if place[i] < episode[i][2]]


def live(data, counts, memory):
    """The rows that a replay holds for starts, in order."""
    ever, gone = (int(x) for x in counts)
    return [int(x) for x in reader(memory, jnp.asarray(data))("start", np.arange(gone, ever))]


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("stack", [1, 4])
@pytest.mark.parametrize("n", [1, 3, 5])
@pytest.mark.parametrize("length", [30, 100])  # capacity 40: before and after the ring has wrapped around
def test_every_transition_equals_the_naive_one(n, stack, length, dtype):
    memory = memory_of(40, n, stack, dtype)
    for seed in range(3):
        rows, place, episode = stream(np.random.default_rng(seed), length, dtype)
        replay, host = fill(memory, rows), fill_host(memory, rows)
        expected, data = valid_starts(memory, place, episode, length), host.rows[0].view(np.uint8).reshape(40, -1)
        assert live(replay.data, replay.counts, memory) == expected == live(data, host.counts[0], memory)
        i = np.array(expected, np.int32)
        ours = jax.jit(lambda replay, i: gather(memory, reader(memory, replay.data), i))(replay, i)
        bits = np.array([-(-(k << 32) // len(expected)) for k in range(len(expected))], np.uint32)  # draw all of them, one after the other
        hosts = jax.jit(functools.partial(from_windows, memory))(host.windows(0, bits))
        truth = [naive(rows, place, episode, j, n, stack) for j in expected]
        for found in (ours, hosts):
            for name in Transition._fields:
                np.testing.assert_allclose(getattr(found, name), np.stack([getattr(t, name) for t in truth]), rtol=1e-6, atol=1e-6)
        assert ours.obs.dtype == dtype


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("length", [1, 3, 30, 100])
def test_a_row_can_be_seen_before_it_is_stored(length, dtype):
    memory = memory_of(40, 1, 4, dtype)
    rows, _, _ = stream(np.random.default_rng(length), length + 1, dtype)
    before, (frame, *_, first), i = fill(memory, rows[:-1]), rows[-1], length
    opening = opening_bytes(memory, frame, first)
    after = open_row(memory, before, i, opening)
    found = observe(memory, opened(memory, reader(memory, before.data), i, opening), jnp.array([i]))
    stale = observe(memory, reader(memory, before.data), jnp.array([i]))
    np.testing.assert_array_equal(found, observe(memory, reader(memory, after.data), jnp.array([i])))
    assert not np.array_equal(found, stale)


@settings(max_examples=25)
@given(st.integers(0, 2**31), st.integers(12, 90), st.sampled_from([1, 3, 5]), st.sampled_from([1, 4]))
def test_the_host_store_is_the_device_store(seed, length, n, stack):
    memory = memory_of(30, n, stack)
    rows, _, _ = stream(np.random.default_rng(seed), length)
    replay, host = fill(memory, rows), fill_host(memory, rows)
    data = host.rows[0].view(np.uint8).reshape(30, -1)
    np.testing.assert_array_equal(np.asarray(replay.data), data)
    np.testing.assert_array_equal(replay.counts, host.counts[0])
    keys = jax.random.split(jax.random.key(seed), 1)
    ours = sample(memory, replay, length, keys[0], 16)
    hosts = from_windows(memory, host.windows(0, np.asarray(jax.random.bits(keys[0], (16,)))))
    for name in Transition._fields:
        np.testing.assert_array_equal(getattr(ours, name), getattr(hosts, name))
    seen = observe(memory, reader(memory, replay.data), np.array([length - 1]))[0]
    np.testing.assert_array_equal(seen, from_seen(memory, host.seen(length - 1)[0]))


@given(st.integers(0, 2**32 - 1), st.integers(1, 2**31))
def test_random_bits_become_numbers_below_a_bound(bits, many):
    for xp in (np, jnp):
        assert int(below(xp.uint32(bits), xp.uint32(many))) == bits * many >> 32


def test_sampling_is_uniform_over_starts():
    memory = memory_of(40, 1, 1)
    rows, place, episode = stream(np.random.default_rng(0), 100)
    replay, expected = fill(memory, rows), valid_starts(memory_of(40, 1, 1), place, episode, 100)
    drawn = sample(memory, replay, 100, jax.random.key(0), 40_000)
    seen = {tuple(row) for row in np.asarray(drawn.obs)}
    assert seen == {tuple(rows[i][0]) for i in expected}
    counts = np.array([np.all(np.asarray(drawn.obs) == rows[i][0], 1).sum() for i in expected])
    share = 40_000 / len(expected)
    assert np.abs(counts - share).max() < 5 * np.sqrt(share)  # five standard deviations


def test_what_a_replay_takes_is_what_is_said():
    for prioritised in (False, True):
        memory = memory_of(50, 1, 1, "uint8", prioritised)
        assert nbytes(memory) == sum(x.nbytes for x in jax.tree.leaves(empty(memory)))
        assert memory.row.itemsize == 16 + 4  # two bytes of frame, padded


@pytest.mark.parametrize("length", [30, 100])
def test_priorities_start_equal_for_every_start_and_only_for_them(length):
    memory = memory_of(40, 3, 2, prioritised=True)
    rows, place, episode = stream(np.random.default_rng(1), length)
    replay, expected = fill(memory, rows), valid_starts(memory, place, episode, length)
    leaves = np.asarray(replay.tree.nodes)[64 : 64 + 40]
    assert set(np.flatnonzero(leaves)) == {i % 40 for i in expected}
    assert set(leaves[leaves > 0]) == {1.0}
    drawn = sample(memory, replay, length, jax.random.key(0), 64)
    truth = {i % 40: naive(rows, place, episode, i, 3, 2) for i in expected}
    for b in range(64):
        np.testing.assert_allclose(drawn.next_obs[b], truth[int(drawn.slot[b])].next_obs)
    np.testing.assert_array_equal(drawn.weight, 1)


def test_prioritised_sampling_is_really_on():
    """A start with nine times the loss has three times the priority, is drawn three times as often and weighs 1/√3 as much."""
    memory = memory_of(40, 1, 1, prioritised=True)
    rows, place, episode = stream(np.random.default_rng(2), 30)
    replay, expected = fill(memory, rows), valid_starts(memory, place, episode, 30)
    slots = jnp.array(expected)
    losses = jnp.ones(len(expected)).at[0].set(9.0)
    replay = replay._replace(tree=priorities.learned(replay.tree, slots, losses))
    assert float(replay.tree.largest) == pytest.approx(3.0)
    batch = 20_000
    drawn = sample(memory, replay, 30, jax.random.key(0), batch)
    often = (np.asarray(drawn.slot) == expected[0]).sum()
    assert often == pytest.approx(batch * 3 / (len(expected) + 2), rel=0.05)
    weight = np.asarray(drawn.weight)[np.asarray(drawn.slot) == expected[0]]
    np.testing.assert_allclose(weight, 1 / np.sqrt(3), rtol=1e-5)
    assert np.asarray(drawn.weight).max() == 1


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 12), st.floats(0, 100, width=32, allow_subnormal=False)), min_size=1, max_size=40))
def test_a_sum_tree_holds_the_sums(writes):
    tree, leaves = priorities.empty(13), np.zeros(13, np.float32)
    for slot, value in writes:
        tree = priorities.write(tree, jnp.array([slot, slot]), jnp.array([value, 0.0]))  # of two, the larger
        leaves[slot] = value
    nodes = np.asarray(tree.nodes)
    np.testing.assert_array_equal(nodes[16:29], leaves)
    for i in range(1, 16):
        assert nodes[i] == np.float32(nodes[2 * i] + nodes[2 * i + 1])
    if leaves.any():
        slots, _ = priorities.draw(tree, jax.random.key(len(writes)), 64)
        assert (leaves[np.asarray(slots)] > 0).all()
