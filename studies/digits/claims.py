"""What the paper says of its MNIST experiment, what the record has, and whether they agree.

A verdict is a rule on the record, so that another run may change it: "agrees", "differs", or "cannot be told"
where the interval over machines has both in it.
"""

from typing import Any

from studies.record import Record

CLOSE = 0.1  # of the best fixed weight: what we take for comparable

Claim = tuple[str, str, str]


def claims(record: Record) -> list[Claim]:
    """Statement of the paper, what is here, verdict."""
    results, config = record.results, record.config
    *fixed, staged = results["rows"]
    largest = max(value for row in results["rows"] for part in row["pvalue"]["values"] for value in part)
    smallest = min(value for row in results["rows"] for part in row["separation"]["values"] for value in part)
    highest = [value for part in staged["highest"]["values"] for value in part]
    of_fixed = [value for row in fixed for part in row["highest"]["values"] for value in part]
    shown = config["shown"]
    return [
        _faster(
            results["leads"], "early_power_proxy", "P̂", "staging rises faster in the early training period"
        ),
        _faster(results["leads"], "early_discrepancy", "discrepancy", "the same by figure 7C"),
        _comparable(fixed, staged, "last_power_proxy", "the final model is comparable to fixed λ", "last P̂"),
        (
            f"clear separation at n_GoF = {config['tested']}, n_boot = {config['draws']}, for every λ",
            f"at least {smallest:.1f} sd from the null; largest p {largest:.2g}",
            "agrees" if largest <= 1.01 / (config["draws"] + 1) else "differs",
        ),
        _comparable(
            fixed,
            staged,
            "mean_discrepancy",
            "discrepancy through training comparable to the best fixed λ",
            "mean discrepancy",
        ),
        (
            f"the {shown} highest witnesses are true ones (staged)",
            f"{_range(highest)} of {shown} by critic",
            "agrees" if min(highest) == shown else "differs",
        ),
        (
            "fixed λ do well at it, too",
            f"{_range(of_fixed)} of {shown} by critic",
            "agrees" if min(of_fixed) == shown else "differs",
        ),
    ]


def _faster(leads: list[dict[str, Any]], key: str, word: str, statement: str) -> Claim:
    """Staged above every fixed weight agrees, surely below a single one differs."""
    below = [row["scheme"] for row in leads if row[key]["interval"][1] < 0]
    above = [row["scheme"] for row in leads if row[key]["interval"][0] > 0]
    worst = min(leads, key=lambda row: float(row[key]["mean"]))
    low, top = worst[key]["interval"]
    words = [f"{word} of epochs 1 to 5: staged surely above λ = {', '.join(above) or 'none'}"]
    words.append(f"surely below λ = {', '.join(below) or 'none'}")
    words.append(f"against λ = {worst['scheme']} {worst[key]['mean']:+.2f} [{low:+.2f}, {top:+.2f}]")
    verdict = "differs" if below else "agrees" if len(above) == len(leads) else "cannot be told"
    return statement, "; ".join(words), verdict


def _comparable(
    fixed: list[dict[str, Any]], staged: dict[str, Any], key: str, statement: str, word: str
) -> Claim:
    best = max(fixed, key=lambda row: float(row[key]["mean"]))
    ours, least = staged[key]["mean"], (1 - CLOSE) * best[key]["mean"]
    words = f"{word}: staged {ours:.2f}, best fixed {best[key]['mean']:.2f} (λ = {best['scheme']})"
    return statement, words, "agrees" if ours >= least else "differs"


def _range(values: list[float]) -> str:
    low, top = min(values), max(values)
    return f"{low:.0f}" if low == top else f"{low:.0f} to {top:.0f}"
