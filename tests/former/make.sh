#!/usr/bin/env bash
# The run directories and the model beside this file were written by iterq at commit dcb3938, once, with
#
#     tests/former/make.sh CHECKOUT
#
# where CHECKOUT is a working tree of that commit. They are small and stay as they are: test_former.py checks that what was written then
# can be read, evaluated, reported and continued now. Running this again replaces them.
set -euo pipefail
checkout=$(cd "$1" && pwd)
cd "$(dirname "$0")"
export PYTHONPATH=$checkout

train() {
    local name=$1 algorithm=$2
    shift 2
    rm -rf "$name"
    "${PYTHON:-python3}" -m iterq train "$algorithm" "$@" --features 8 --batch-size 8 --learning-starts 60 --no-tensorboard --out "$name"
    rm "$name/.lock" # made anew by whoever opens the run
}

q() { train "$@" --total-timesteps 600 --buffer-size 100 --epsilon-decay 200 --eval-every 300 --eval-episodes 2 --log-every 200; }
soft() { train "$@" --total-timesteps 210 --buffer-size 80 --eval-every 200 --eval-episodes 1 --log-every 70; }

q dqn dqn --env CartPole-v1 --seeds 2
q i-dqn i-dqn --env jax/Catch --seeds 3,5 --K 3 --T 100 --D 20 --checkpoint-every 400
q iqn iqn --env CartPole-v1 --quantiles 8 --seeds 1
q bootstrapped-dqn bootstrapped-dqn --env jax/CartPole-v1 --K 4 --seeds 1
q prioritised double-dqn --env jax/Catch --prioritised --n-step 3 --frame-stack 2 --seeds 1
q anchor-too dqn --env CartPole-v1 --acting anchor-too --shifts early --seeds 1 # as the preset `published` said of DQN then
soft i-sac i-sac --env Pendulum-v1 --K 2 --seeds 1
soft i-droq i-droq --env Pendulum-v1 --K 2 --utd 2 --seeds 1
soft unread sac --env Pendulum-v1 --acting last --T 300 --epsilon-end 0.3 --seeds 1 # options that SAC does not read were taken then

"${PYTHON:-python3}" - <<'PYTHON'
import iterq

small = {"features": (8,), "batch_size": 8, "buffer_size": 100, "learning_starts": 60, "eval_every": 0, "tensorboard": False}
iterq.make("i-iqn", env="jax/Chain", K=2, quantiles=8, seeds=(4, 6), **small).learn(200).save("model")
PYTHON
