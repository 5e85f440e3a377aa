"""Goodness-of-fit tests."""

from steincritic.gof.choose import gof_test
from steincritic.gof.power import Rate, SplitPower, mean_power, split_power
from steincritic.gof.result import GofResult
from steincritic.gof.split import Split, split_test

__all__ = ["GofResult", "Rate", "Split", "SplitPower", "gof_test", "mean_power", "split_power", "split_test"]
