"""Tables of lazy training, made from its record."""

from typing import Any

import numpy as np

from studies.record import Record
from studies.show import Row, document, listing, markdown

NAMES = {"gm-1d": "1-D mixture", "gm-2d": "2-D mixture"}


def lazy_table(record: Record) -> str:
    config, rows, corollary = record.config, record.results["rows"], record.results["corollary"]
    theorems = record.results["theorems"]
    quality = [
        [_words(row), *(f"{value:.3f}" for value in (*row["network_error"][-1], row["kernel_error"][-1]))]
        for row in rows
    ]
    return document(
        record,
        listing(rows, _LAWS),
        "Exponents fitted in logarithms, expected value in brackets; ranges are over the recorded times "
        f"(μ₁λt from {config['clock'][0]:g} to {config['clock'][-1]:g}) or over λ. In λ from "
        f"{config['lazy_from']:g} on, in t up to μ₁λt = {config['early_until']:g}. Last four columns: the "
        "largest share of a proved bound that is used, over times, λ and numbers of modes.",
        markdown(["problem, width", *(f"λ = {lam:g}" for lam in config["lambdas"]), "kernel"], quality),
        "Relative error |λu − f*|_p / |f*|_p at the last recorded time: lazy critics end where the kernel "
        "does, the least lazy one ends closest to f*.",
        f"All that follows is of width {config['widths'][0]}.",
        listing(_with_problem(theorems, "population"), _population_columns(config["theorem_lambdas"])),
        "Theorem 4.6 with the first m modes, at the start t₀ = 1 of its window (31): error of the network "
        "and bound (32), both divided by |f*|_p. r = 2|θ(0)|, the smallest radius that is allowed; L₁ and "
        "L₂ along the path. Last column: the largest error / bound over the recorded times in the window "
        "and all λ.",
        listing(_with_problem(theorems, "population"), _SAMPLED),
        "Proposition 4.9 and theorem 4.10 with these modes, constants along the path at λ = "
        f"{config['theorem_lambdas'][-1]:g}. Last columns: λ and n from which either of the two terms is "
        "below 0.1 |f*|_p. n_λ is a lower estimate: the last critic stands for the supremum over critics in "
        "(C5).",
        listing(_with_problem(theorems, "starts"), _STARTS),
        "The remark on small starts, training from f(x, θ(0)) itself, with the last layer scaled to "
        f"|λf(0)|_p = {config['start_share']:g} |f*|_p or as initialized (a relative start above ε is not "
        "small, and the remark does not apply). Errors at the promised time, divided by |f*|_p; 3ε is the "
        "promise for the kernel. Then shares of the bounds (29) and (30), multiplied by 1 + the relative "
        "start and by its square.",
        listing(_rate_rows(theorems), _RATES),
        f"Distance |λû − λū|_p at μ₁λt = {config['sample_clock']:g}: root mean square over "
        f"{config['replicates']} samples per n for the kernel, {config['trained']} for networks; exponent in "
        "n ± standard error (−½ where lazy). Then the distance of networks over that of the kernel on "
        "the same samples, by n; the largest share of lemma 4.8's √(t/λ) |f*|_p that |θ̂(t) − θ(0)| uses, by "
        "sample and n; bound (40) at the largest n over the distance there.",
        *(_unstopped(theorem) for theorem in theorems),
        f"Power corollary, one-dimensional critic at λ = 16 (relative error "
        f"{corollary['relative_error']:.2f}; it asks for less than 0.9): it promises level and power 0.05 "
        f"and 0.95 from n = {corollary['promised']:.3g}; there the true level is {corollary['level']:.1g} "
        f"and the power {corollary['power']:.3f}. By the normal law the critic needs n = "
        f"{corollary['needed']:.0f}, where simulated tests have power {corollary['simulated_power']:.3f}. "
        f"True, and {corollary['promised'] / corollary['needed']:.1g} times too careful.",
    )


def _words(row: Row) -> str:
    return f"{NAMES[row['problem']]}, {row['width']}"


def _ends(slopes: list[float]) -> str:
    return " to ".join(dict.fromkeys(f"{end(slopes):.2f}" for end in (min, max)))


def _used(row: Row, value: str, bound: str) -> float:
    return float(np.max(np.array(row[value]) / np.array(row[bound])))


_LAWS: dict[str, Any] = {
    "problem, width": _words,
    "parameters": "{parameters}",
    "distance in λ (−1)": lambda row: _ends(row["slopes"]["difference_in_lambda"]),
    "movement in λ (−1)": lambda row: _ends(row["slopes"]["moved_in_lambda"]),
    "distance in t (2)": lambda row: _ends(row["slopes"]["difference_in_time"]),
    "kernel error / (27)": "{kernel_bound_used:.3f}",
    "kernel error / 2ε, (28)": lambda row: f"{_used(row['two_eps'], 'error', 'eps') / 2:.3f}",
    "movement / (29)": lambda row: f"{_used(row, 'moved', 'moved_bound'):.2f}",
    "distance / (30)": lambda row: f"{_used(row, 'difference', 'envelope'):.2g}" if row["envelope"] else "–",
}
_SAMPLED: dict[str, Any] = {
    "problem": "{name}",
    "m": "{modes}",
    "L₁, L₂, L₃, L₄, b_q": lambda row: ", ".join(f"{value:.3g}" for value in row["sampled"]["constants"]),
    "C₂": "{sampled[factor]:.2g}",
    "κ₁": "{sampled[kappa_1]:.2g}",
    "κ₂": "{sampled[kappa_2]:.2g}",
    "least λ": "{sampled[least_lambda]:.3g}",
    "n₅": "{sampled[asked][n_5]}",
    "n_λ at least": "{sampled[n_lemma]}",
    "n_λt": "{sampled[asked][n_time]:.2g}",
    "λ, first term 0.1": "{sampled[asked][lam]:.1g}",
    "n, second term 0.1": "{sampled[asked][n]:.1g}",
}
_STARTS: dict[str, Any] = {
    "problem": "{name}",
    "m": "{modes}",
    "λ": "{lam:g}",
    "relative start": "{start:.3g}",
    "ε": "{eps:.3f}",
    "μ₁λt": "{wait:.4g}",
    "kernel error": "{kernel_error:.3f}",
    "error": "{error:.3f}",
    "kernel error / 3ε": lambda row: f"{row['kernel_error'] / (3 * row['eps']):.2f}",
    "movement / bound": "{moved_used:.2f}",
    "distance / bound": "{distance_used:.1g}",
}
_RATES: dict[str, Any] = {
    "problem": "{name}",
    "trained": "{curve}",
    "n": "{sizes[0]} to {last}",
    "exponent": "{rate[exponent]:.3f} ± {rate[error]:.3f}",
    "distance / the kernel's": "{beside}",
    "movement / lemma 4.8": "{lemma}",
    "(40) / distance": "{bound}",
}


def _population_columns(lambdas: list[float]) -> dict[str, Any]:
    def pair(k: int) -> Any:
        return lambda row: f"{row['error'][k]:.3f}, {row['bound'][k]:.3g}"

    return {
        "problem": "{name}",
        "m": "{modes}",
        "ε": "{eps:.3f}",
        "μ₁λt": "{wait:.4g}",
        "least λ": "{least_lambda:.3g}",
        f"last t₀, λ = {lambdas[0]:g}": "{latest[0]:.3g}",
        **{f"error, (32) at λ = {lam:g}": pair(k) for k, lam in enumerate(lambdas)},
        "error / (32)": "{used:.2g}",
    }


def _with_problem(theorems: list[Row], key: str) -> list[Row]:
    return [{"name": NAMES[theorem["problem"]], **row} for theorem in theorems for row in theorem[key]]


def _rate_rows(theorems: list[Row]) -> list[Row]:
    rows = []
    for theorem in theorems:
        samples = theorem["samples"]
        for key, rate in samples["rates"].items():
            distance, network = samples["distance"][key], key != "kernel"
            rows.append(
                {
                    "name": NAMES[theorem["problem"]],
                    "curve": f"network, λ = {key}" if network else "kernel",
                    "sizes": samples["sizes"],
                    "last": samples["sizes"][len(distance) - 1],
                    "rate": rate,
                    "beside": _ends(samples["beside_kernel"][key]) if network else "–",
                    "lemma": f"{max(samples['lemma_used'][key]):.2f}" if network else "–",
                    "bound": f"{samples['bound'][key] / distance[-1]:.1g}" if network else "–",
                }
            )
    return rows


def _unstopped(theorem: Row) -> str:
    row = theorem["unstopped"]
    sizes = np.array(row["samples"])  # (samples, times)
    parts = [
        f"{np.median(column):.2f} at λt = {time:g} ({column.min():.2f} to {column.max():.3g}; population "
        f"{whole:.2f})"
        for time, column, whole in zip(row["times"], sizes.T, row["population"], strict=True)
    ]
    return (
        f"Few points, {NAMES[theorem['problem']]}: |λu|_p / |f*|_p over {len(sizes)} flows with λ = "
        f"{row['lam']:g} on n = {row['n']} points has the median {', '.join(parts)}."
    )
