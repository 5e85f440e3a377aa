"""python -m studies.paper.pages: writes the parts of the docs that come from records.

Such a part stands between two comments, so that the page reads on GitHub, too:

    <!-- from records: claims -->
    ...
    <!-- end of records -->

A test compares every part with its records, so none can be stale.
"""

import re
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path

from steincritic.files import write_atomically
from studies import show
from studies.digits.claims import claims as digits_claims
from studies.paper import claims
from studies.paper.claims import Claim, record
from studies.show import Row, mean_and_error

DOCS = Path(__file__).parents[2] / "docs"
PART = re.compile(r"(<!-- from records: ([\w-]+) -->\n).*?(\n<!-- end of records -->)", re.DOTALL)


def _tables() -> str:
    columns: show.Columns = {
        "λ": "{scheme}",
        "power, paper (sd)": "{power}",
        "ours": "{our power}",
        "": "{power agrees}",
        "epoch, paper / ours": "{epoch}",
        "MSE_q/4, paper": "{mse}",
        "ours ": "{our mse}",
        " ": "{mse agrees}",
    }
    parts = []
    for dim, number in ((2, 1), (10, 2), (25, 3)):
        rows = list(claims.table_claims(f"gm-{dim}d"))
        parts.append(f"Table A.{number}, {dim} dimensions:\n\n" + show.listing(rows, columns))
    return "\n\n".join(parts)


def _listed(statements: Iterable[Claim]) -> str:
    rows = [[claim.where, claim.paper, claim.ours, claim.verdict, claim.reason] for claim in statements]
    return show.markdown(["where", "the paper", "here", "", "why"], rows)


def _statements() -> str:
    digits = (Claim("section 6.3", *words) for words in digits_claims(record("mnist")))
    return _listed(
        chain(
            claims.one_dimension_claims(),
            claims.mixture_claims(),
            claims.fifty_claims(),
            claims.time_claims(),
            digits,
            claims.adaptive_claims(),
        )
    )


def _digits() -> str:
    found = record("mnist")
    return show.markdown(["the paper", "here", "", "why"], [list(words) for words in digits_claims(found)])


def _count() -> str:
    tables = [row for dim in (2, 10, 25) for row in claims.table_claims(f"gm-{dim}d")]
    verdicts = [row[key] for row in tables for key in ("power agrees", "mse agrees")]
    agree = sum(verdict == claims.AGREES for verdict in verdicts)
    return f"{agree} of the {len(verdicts)} numbers of tables A.1 to A.3 agree."


def _advice() -> str:
    """What staging gains in each dimension, beside fixed weights."""
    lines = []
    for dim in (2, 10, 25):
        rows = record(f"gm-{dim}d").results["rows"]

        def shown(row: Row) -> str:
            error = min(row["curves"]["mse_q"]["mean"])
            return (
                f"{row['scheme']}: {error:.2f}, {row['rules']['exact monitor']['power']['exact']['mean']:.2f}"
            )

        staged = [row for row in rows if "staged" in row["scheme"]]
        fixed = sorted((row for row in rows if row not in staged), key=lambda row: float(row["scheme"]))
        best = min(fixed, key=lambda row: min(row["curves"]["mse_q"]["mean"]))
        cells = [f"{dim}", "; ".join(map(shown, staged)), shown(best), shown(fixed[-1])]
        lines.append([cell.replace("staged ", "β ") for cell in cells])
    return show.markdown(["dimensions", "staged", "best fixed λ", "largest fixed λ"], lines)


def _mixtures() -> str:
    columns: show.Columns = {
        "λ": "{scheme}",
        "power, paper": "{published[power]:.3f}",
        "ours, as the paper tests": lambda row: mean_and_error(claims.common_power(row)),
        "ours, exact divergence": lambda row: mean_and_error(row["rules"]["exact monitor"]["power"]["exact"]),
        "MSE/4, paper": "{published[mse_q]:.3f}",
        "MSE/4, ours": lambda row: f"{row['rules']['probed monitor']['mse_q']['mean'] / 4:.3f}",
    }
    rows = [row for row in record("gm-10d").results["rows"] if "staged" in row["scheme"]]
    return show.listing(rows, columns)


def _fifty() -> str:
    """Power by n of the paper's test by three rules, of both KSD tests and of our default."""
    parts = []
    for name, title in (
        ("ksd-50d", "ω = 0.5, figure 6 A"),
        ("ksd-50d-easy", "ρ = 0.99, ω = 0.05, figure A.3"),
    ):
        named = {method: f"neural, {rule}" for rule, method in claims.RULES.items()}
        named |= {method: method for method in (*claims.KERNELS, "combined")}
        rows = [row for row in record(name).results["rows"] if row["method"] in named]
        shown = [row | {"method": named[row["method"]]} for row in rows]
        shown.sort(key=lambda row: (list(named.values()).index(row["method"]), row["n"]))
        columns = sorted(show.unique(shown, "n"))
        table = show.pivot(shown, {"method": "method"}, "n", _short, columns=columns, title="n = {}".format)
        parts.append(f"{title}:\n\n{table}")
    return "\n\n".join(parts)


def _short(row: Row) -> str:
    return f"{claims.value(row)[0]:.2f} ± {claims.value(row)[1]:.2f}"


PARTS: dict[str, Callable[[], str]] = {
    "digits": _digits,
    "fifty": _fifty,
    "tables": _tables,
    "statements": _statements,
    "count": _count,
    "advice": _advice,
    "mixtures": _mixtures,
}


def renewed(page: str) -> str:
    """The page with its parts as the records have them."""
    return PART.sub(lambda part: f"{part[1]}\n{PARTS[part[2]]()}\n{part[3]}", page)


def main() -> None:
    for path in sorted(DOCS.rglob("*.md")):
        before = path.read_text()
        if (after := renewed(before)) != before:
            write_atomically(path, after.encode())
            print(path.relative_to(DOCS.parent))


if __name__ == "__main__":
    main()
