"""The paper's experiments by name. A module has `Config`, `SCALES` (overrides by scale) and `run(config, folder) -> Result`."""

EXPERIMENTS = {
    "lqr": ("iterq.reproduce.lqr", "Appendix C.1: QN and i-QN on a linear quadratic regulator, in the space of Q-functions"),
    "car-on-hill": ("iterq.reproduce.car_on_hill", "Section 5: i-FQI on car-on-hill, performance loss, Table 1 and Proposition 4.1"),
}
