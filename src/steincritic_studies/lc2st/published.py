"""Power of L-C2ST as published [linhart2023], at level 0.05.

Means over 50 runs and ten observations, by the mean squared error of the classifier's probabilities unless
said otherwise; from `emp_power_dict_n_train` in the results that come with JuliaLinhart/lc2st (experiment 2,
a classifier trained on 10,000 simulations, 10,000 draws tested). They are the values of the paper's figures 2
and 5. C2ST is the usual two-sample test with 10,000 reference draws, local HPD the test of [zhao2021].
"""

SIMULATIONS = (100, 1000, 10_000, 100_000)
POWER: dict[str, dict[str, tuple[float, ...]]] = {
    "bernoulli_glm": {
        "L-C2ST": (1.0, 0.982, 0.052, 0.054),
        "L-C2ST-NF": (1.0, 1.0, 0.804, 0.060),
        "local HPD": (0.858, 0.466, 0.262, 0.052),
        "C2ST": (1.0, 1.0, 1.0, 0.874),
        "C2ST, accuracy": (1.0, 1.0, 1.0, 1.0),
    },
    "slcp": {
        "L-C2ST": (1.0, 1.0, 0.586, 0.008),
        "L-C2ST-NF": (1.0, 1.0, 0.856, 0.500),
        "local HPD": (0.904, 0.630, 0.490, 0.204),
        "C2ST": (1.0, 1.0, 1.0, 1.0),
        "C2ST, accuracy": (1.0, 1.0, 1.0, 1.0),
    },
    "two_moons": {
        "L-C2ST": (1.0, 1.0, 0.798, 0.170),
        "L-C2ST-NF": (1.0, 1.0, 0.904, 0.526),
        "local HPD": (1.0, 1.0, 1.0, 0.984),
        "C2ST": (1.0, 1.0, 0.974, 0.928),
        "C2ST, accuracy": (1.0, 1.0, 1.0, 0.990),
    },
    "gaussian_linear_uniform": {
        "L-C2ST": (1.0, 0.338, 0.0, 0.0),
        "L-C2ST-NF": (1.0, 0.056, 0.056, 0.036),
        "local HPD": (0.992, 0.404, 0.076, 0.070),
        "C2ST": (1.0, 1.0, 0.768, 0.054),
        "C2ST, accuracy": (1.0, 1.0, 1.0, 1.0),
    },
}
