"""Goodness-of-fit tests."""

from steincritic.gof.aggregated import KsdAgg, ksdagg_test
from steincritic.gof.choose import gof_test
from steincritic.gof.crossfit import crossfit_test
from steincritic.gof.fssd import Fssd, fssd_test
from steincritic.gof.kernel import Ksd, ksd_test
from steincritic.gof.panel import CrossFit
from steincritic.gof.power import Rate
from steincritic.gof.result import GofResult
from steincritic.gof.sequential import MonitorState, Sequential, load_state, monitor
from steincritic.gof.split import Split, split_test
from steincritic.gof.trials import Trials, calibrate, power, trials_of

__all__ = [
    "CrossFit",
    "Fssd",
    "GofResult",
    "Ksd",
    "KsdAgg",
    "MonitorState",
    "Rate",
    "Sequential",
    "Split",
    "Trials",
    "calibrate",
    "crossfit_test",
    "fssd_test",
    "gof_test",
    "ksd_test",
    "ksdagg_test",
    "load_state",
    "monitor",
    "power",
    "split_test",
    "trials_of",
]
