"""What the paper says of its MNIST experiment, what the record has, and whether they agree.

A verdict is a rule on the record, so that another run may change it: "agrees", "differs", or "cannot be told"
where the interval over machines has both in it.
"""

from studies.record import Record
from studies.show import Row

EARLY = 5  # epochs
CLOSE = 0.1  # of the best fixed weight: what we take for comparable
CLEAR = 3.0  # standard deviations from the null: what we take for a clear separation

Claim = tuple[str, str, str, str]


def claims(record: Record) -> list[Claim]:
    """Statement of the paper, what is here, verdict, and why where it is not that they agree."""
    results, config = record.results, record.config
    *fixed, staged = results["rows"]
    staging, test = staged["staging"], f"n_GoF = {config['tested']}, n_boot = {config['draws']}"
    early, last = (staging["initial"] * staging["decay"] ** k for k in (EARLY - 1, config["epochs"] - 1))
    starts = (
        f"λ falls from {staging['initial']:g} to {early:.2g} in these epochs: staging rises as a fixed λ of "
        "that size would"
    )
    flat = f"λ is {max(last, staging['floor']):.2g} in the end; small λ flatten, here as in the fixed rows"
    shown = f"the {config['shown']} highest witnesses are true ones"
    return [
        _faster(
            results["leads"], "early_power_proxy", "P̂", "staging rises faster in the early period", starts
        ),
        _faster(results["leads"], "early_discrepancy", "discrepancy", "the same by figure 7C", starts),
        _comparable(
            fixed, staged, "last_power_proxy", "last P̂", "the final model is comparable to fixed λ", ""
        ),
        _separated([staged], f"clear separation at {test}, staged"),
        _separated(fixed, "the same for fixed λ"),
        _comparable(
            fixed,
            staged,
            "mean_discrepancy",
            "mean discrepancy",
            "discrepancy through training comparable to the best fixed λ",
            flat,
        ),
        _highest([staged], config["shown"], f"{shown}, staged"),
        _highest(fixed, config["shown"], "fixed λ do well at it, too"),
    ]


def _faster(leads: list[Row], key: str, word: str, statement: str, why: str) -> Claim:
    """Staged above every fixed weight agrees, surely below a single one differs."""
    below = [row["scheme"] for row in leads if row[key]["interval"][1] < 0]
    above = [row["scheme"] for row in leads if row[key]["interval"][0] > 0]
    worst = min(leads, key=lambda row: float(row[key]["mean"]))
    low, top = worst[key]["interval"]
    words = [f"{word} of epochs 1 to {EARLY}: staged surely above λ = {', '.join(above) or 'none'}"]
    words.append(f"surely below λ = {', '.join(below) or 'none'}")
    words.append(f"against λ = {worst['scheme']} {worst[key]['mean']:+.2f} [{low:+.2f}, {top:+.2f}]")
    verdict = "differs" if below else "agrees" if len(above) == len(leads) else "cannot be told"
    return statement, "; ".join(words), verdict, "" if verdict == "agrees" else why


def _comparable(fixed: list[Row], staged: Row, key: str, word: str, statement: str, why: str) -> Claim:
    best = max(fixed, key=lambda row: float(row[key]["mean"]))
    holds = bool(staged[key]["mean"] >= (1 - CLOSE) * best[key]["mean"])
    words = f"staged {staged[key]['mean']:.2f}, best fixed {best[key]['mean']:.2f} (λ = {best['scheme']})"
    return statement, f"{word}: {words}", _told(holds), "" if holds else why


def _separated(rows: list[Row], statement: str) -> Claim:
    by_scheme = {row["scheme"]: _critics(row, "separation") for row in rows}
    values = [value for critics in by_scheme.values() for value in critics]
    clear = sum(value >= CLEAR for value in values)
    words = f"{clear} of {len(values)} critics, {min(values):.1f} to {max(values):.1f} sd from the null"
    not_all = [name for name, critics in by_scheme.items() if min(critics) < CLEAR]
    return statement, words, _told(not not_all), f"not λ = {', '.join(not_all)}" if not_all else ""


def _highest(rows: list[Row], shown: int, statement: str) -> Claim:
    values = [value for row in rows for value in _critics(row, "highest")]
    words = f"at least {min(values):.0f} of {shown} for each of {len(values)} critics"
    return statement, words, _told(min(values) == shown), ""


def _critics(row: Row, key: str) -> list[float]:
    return [value for machine in row[key]["values"] for value in machine]


def _told(holds: bool) -> str:
    return "agrees" if holds else "differs"
