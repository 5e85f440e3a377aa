"""How large what is wrong is: one sentence, from the findings' estimates."""

import pytest
import torch

import steincritic as sc
from steincritic.diagnosis.check_result import size_sentence
from steincritic.diagnosis.findings import Finding

Q = sc.models.GaussianMixture(torch.zeros(1, 2, dtype=torch.float64))


def finding(kind, estimate, interval, expected):
    sizes = {"estimate": estimate, "interval": interval, "expected": expected}
    about = {"columns": (0,), "names": ("income",), "sentence": f"income {kind}"}
    return Finding(kind=kind, pvalue=0.01, lens="moments", **about, **sizes)


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (
            finding("shift", 0.03, (0.02, 0.04), 0.0),
            "small: the mean of income is off by 0.030 of a standard",
        ),
        (finding("shift", -0.3, (-0.4, -0.2), 0.0), "moderate: the mean of income is off by -0.30"),
        (finding("spread", 1.6, (1.5, 1.7), 1.0), "large: income spreads 1.60 times as much as the model"),
        (finding("pair", 0.05, (0.02, 0.08), 0.0), "small, the first"),
        (finding("cell", 60.0, (50.0, 70.0), 10.0), "moderate, the first"),  # 50 of 1,000 rows too many
        (finding("tails", 0.2, (0.1, 0.3), 0.01), "large, the first"),
    ],
)
def test_a_difference_has_a_size_in_a_word(one, said):
    assert size_sentence([one], 1001).startswith(f"The largest difference is {said}")


def test_the_largest_counts_and_what_was_not_measured_does_not():
    small, large = finding("shift", 0.1, (0.05, 0.15), 0.0), finding("spread", 2.0, (1.9, 2.1), 1.0)
    assert size_sentence([small, large], 100).startswith("The largest difference is large: income spreads")
    unsure, unknown = finding("shift", 0.1, (-0.1, 0.3), 0.0), finding("together", 1.0, (0.5, 1.5), 0.0)
    assert size_sentence([unsure, unknown], 100) == "" == size_sentence([], 100)


def test_a_harmless_fault_reads_as_such_and_sentences_do_not_contradict_each_other():
    x = Q.sample(600, seed=3)
    x = x - x.mean(0) + torch.tensor([0.17, 0.0])
    result = sc.check(
        Q, x, test=sc.Combined(critics=None, lenses=(sc.lenses.Moments(),), draws=39, cache=False)
    )
    lines = result.summary().splitlines()
    assert result.rejected and lines[1] == result.size
    assert result.size.startswith("The largest difference is small: the mean of x1 is off by 0.1")
    assert "cannot tell how far" not in result.summary() and result.to_dict()["size"] == result.size


def test_where_nothing_is_measured_it_says_so():
    x = Q.sample(60, seed=1) + 2.0
    by_scores = sc.check((Q.score, None), x, test="ksd")
    assert by_scores.rejected and not by_scores.seen
    assert by_scores.size in (
        "No single difference could be measured; its size is known by the Fisher divergence alone.",
        "These data cannot tell how far off the model is.",
    )
    fits = sc.check(Q, Q.sample(60, seed=1), test="ksd")
    assert fits.size == "" and not fits.rejected


def test_check_with_a_tolerance_names_the_columns_beyond_it(tmp_path):
    x = Q.sample(500, seed=2) + torch.tensor([0.4, 0.0])
    result = sc.check(Q, x, tolerance=0.1, names=["age", "income"])
    assert result.rejected and [seen.names for seen in result.seen] == [("age",)]
    assert result.findings[0].startswith("Beyond the tolerance: the mean of age is off by 0.")
    assert result.findings[1].startswith("Not shown to be beyond it: income")
    assert "moderate" in result.size and result.to_dict()["tolerance"]["null"] in result.summary()
    result.save(tmp_path)
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "Wrong by more than is tolerated: yes" in page and "The largest difference is moderate" in page
    within = sc.check(Q, x, tolerance=0.9, names=["age", "income"])
    assert not within.rejected and not within.findings and "no evidence" in within.summary()
    with pytest.raises(sc.InputError, match="pass it to that test"):
        sc.check(Q, x, test=result.test, tolerance=0.5)
