"""The paper's experiments by name. MODULE or MODULE:OBJECT has `Config`, `SCALES` (by scale) and `run(config, folder) -> Result`."""

EXPERIMENTS = {
    "lqr": ("iterq.reproduce.lqr", "Appendix C.1: QN and i-QN on a linear quadratic regulator, in the space of Q-functions"),
    "cart-pole": ("iterq.reproduce.cart_pole", "DQN and i-DQN on CartPole-v1: both solve it on every seed"),
    "lunar-lander": ("iterq.reproduce.lunar_lander", "i-DQN against DQN on LunarLander-v3: learning curves"),
    "cost": ("iterq.reproduce.cost", "Appendix E: FLOPs, memory and time of a window, and the time that it saves"),
    "game-choice": ("iterq.reproduce.game_choice", "Appendix: published scores on the 20 games against those on 55"),
    "atari-main": ("iterq.reproduce.atari:main", "Section 6.1: DQN, i-DQN, IQN and i-IQN on 20 games"),
    "atari-window": ("iterq.reproduce.atari:window", "Section 6.1: i-DQN with K = 1, 5 and 10"),
    "atari-parallel": ("iterq.reproduce.atari:parallel", "Section 6.1: i-DQN with K = 4 and T = 2000 against DQN"),
    "atari-gradient-steps": ("iterq.reproduce.atari:gradient_steps", "Section 6.1: DQN with G = 1 against i-DQN"),
    "atari-nstep": ("iterq.reproduce.atari:nstep", "Section 6.1: i-DQN against n-step returns"),
    "atari-acting": ("iterq.reproduce.atari:acting", "Section 6.1: which member acts"),
    "atari-targets": ("iterq.reproduce.atari:targets", "Section 6.1: i-DQN without target networks"),
    "atari-sharing": ("iterq.reproduce.atari:sharing", "Appendix: shared convolutions against independent networks"),
    "atari-inflated": ("iterq.reproduce.atari:inflated", "Appendix: DQN with as many parameters as i-DQN"),
    "atari-bootstrapped": ("iterq.reproduce.atari:bootstrapped", "Appendix: Bootstrapped DQN, and one member per episode"),
    "atari-spread": ("iterq.reproduce.atari:spread", "Appendix: the distance between the members during training"),
    "atari-published": ("iterq.reproduce.atari:published", "The settings of the paper's text against those of its published runs"),
    "mujoco-main": ("iterq.reproduce.mujoco:main", "Section 6.2: SAC, i-SAC, DroQ and i-DroQ on six MuJoCo tasks"),
    "mujoco-tau": ("iterq.reproduce.mujoco:tau", "Appendix: the same with tau = 0.02 for all"),
    "car-on-hill": ("iterq.reproduce.car_on_hill", "Section 5: i-FQI on car-on-hill, performance loss, Table 1 and Proposition 4.1"),
}
