"""The paper's experiments by name. A module has `Config`, `SCALES` (overrides by scale) and `run(config, folder) -> Result`."""

EXPERIMENTS = {
    "lqr": ("iterq.reproduce.lqr", "Appendix C.1: QN and i-QN on a linear quadratic regulator, in the space of Q-functions"),
    "cart-pole": ("iterq.reproduce.cart_pole", "DQN and i-DQN on CartPole-v1: both solve it on every seed"),
    "lunar-lander": ("iterq.reproduce.lunar_lander", "i-DQN against DQN on LunarLander-v3: learning curves"),
    "cost": ("iterq.reproduce.cost", "Appendix E: FLOPs, memory and time of i-DQN and i-IQN on Atari networks"),
    "car-on-hill": ("iterq.reproduce.car_on_hill", "Section 5: i-FQI on car-on-hill, performance loss, Table 1 and Proposition 4.1"),
}
