"""Tables in Markdown, written from records: the paper's numbers beside ours."""

from typing import Any

from steincritic_studies.record import Record


def mixture_table(record: Record) -> str:
    rows = [
        [
            row["scheme"],
            _published(row, "power", "power_sd"),
            _mean(row["power_stochastic"]),
            _mean(row["power_exact"]),
            _published(row, "mse_q"),
            _mean(row["mse_q_published_scale"]),
            _mean(row["mse_q"]),
            _published(row, "stopping_epoch", digits=1),
            f"{row['stopping_epoch']['mean']:.1f}",
        ]
        for row in record.results["rows"]
    ]
    header = [
        "λ",
        "power, paper (sd)",
        "power, ours, stochastic test",
        "power, ours, exact",
        "MSE_q/4, paper",
        "MSE_q/4, ours",
        "MSE_q, ours, as defined",
        "epoch, paper",
        "epoch, ours",
    ]
    ceilings = "; ".join(f"{name} {value['power']:.3f}" for name, value in record.results["ceilings"].items())
    config = record.config
    return document(
        record,
        markdown(header, rows),
        f"Power at n = {config['tested']}, level 0.05: mean over {config['replicas']} critics ± standard "
        f"error, {config['runs']} tests each. Ceilings at this n: {ceilings}.",
        "MSE_q/4 is the scale of the published tables: the released code computes a quarter of the paper's "
        "definition. The epoch is each critic's minimum of the validation monitor.",
    )


def adaptive_table(record: Record) -> str:
    rows = [
        [row["scheme"], *(_mean(row["lowest"][key]) for key in ("mse_p", "mse_q"))]
        for row in record.results["rows"]
    ]
    return document(
        record,
        markdown(["λ", "lowest MSE on data", "lowest MSE on model draws"], rows),
        f"Mean over {record.config['replicas']} critics ± standard error, by the definition of the MSE.",
    )


def one_dimension_table(record: Record) -> str:
    statistics = record.results["statistics"]
    rows = [
        [name, f"{statistics['mean'][name]:.4f}", f"{statistics['quantile95'][name]:.4f}"]
        for name in statistics["mean"]
    ]
    return document(
        record,
        markdown(["statistics of", "mean", "95 % quantile"], rows),
        f"{record.config['statistics']} statistics each, n = {record.config['tested']}; power of the partly "
        f"trained critic {statistics['power']:.3f}.",
    )


def markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def document(record: Record, *parts: str) -> str:
    """The parts, and how the record was made."""
    environment, seconds = record.environment, record.seconds
    times = ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items())
    made = (
        f"Made by `{record.command}` (seed {record.seed}) on {environment['device']}, torch "
        f"{environment['torch']}; {times}."
    )
    return "\n\n".join([*parts, made]) + "\n"


def devices(record: Record) -> str:
    """Where the jobs of a sweep ran; they may have been gathered from several machines."""
    return "Jobs ran on: " + ", ".join(sorted({row["device"] for row in record.results["rows"]})) + "."


def _mean(value: dict[str, Any] | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value['mean']:.{digits}f} ± {value['se']:.{digits}f}"


def _published(row: dict[str, Any], key: str, spread: str | None = None, digits: int = 3) -> str:
    published = row["published"]
    if not published:
        return "–"
    sd = f" ({published[spread]:.{digits}f})" if spread else ""
    return f"{published[key]:.{digits}f}{sd}"


_DEMANDS = {
    ("points", "false_discovery_rate"): "foreign rows, 20-D: false discovery rate (nominal 0.1)",
    ("points", "recall"): "foreign rows, 20-D: share of them listed",
    ("points", "rejected"): "foreign rows, 20-D: model rejected",
    ("coordinate", "rejected"): "wrong coordinate of 30: model rejected",
    ("coordinate", "named_first"): "wrong coordinate of 30: named first",
    ("coordinate", "first_and_significant"): "wrong coordinate of 30: named first, and significant",
    ("region", "rejected"): "wrong region, 5-D: model rejected",
    ("region", "first_rule_overlaps"): "wrong region, 5-D: first rule overlaps it by half (Jaccard)",
    ("region", "some_rule_overlaps"): "wrong region, 5-D: some rule does",
    ("region", "overlap"): "wrong region, 5-D: overlap of the first rule",
    ("none", "rejected"): "no fault, 5-D: model rejected (level 0.05)",
    ("none", "no_list"): "no fault, 5-D: no list printed",
}


def faults_table(record: Record) -> str:
    rows = []
    for kind, found in record.results["rows"].items():
        for name, value in found.items():
            if name == "n":
                continue
            if "rate" in value:
                low, high = value["interval"]
                shown = f"{value['rate']:.3f} [{low:.3f}, {high:.3f}], {value['runs']} runs"
            else:
                shown = _mean(value)
            rows.append([_DEMANDS[kind, name], str(found["n"]), shown])
    return document(
        record,
        markdown(["planted fault", "n", "measured"], rows),
        "Shares with their Wilson 95 % interval, means with their standard error. The gate of every list is "
        "the cross-fit test at level 0.05.",
    )
