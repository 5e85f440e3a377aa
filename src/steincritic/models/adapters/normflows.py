"""normflows: `NormalizingFlow`, whose draws come with their log-densities."""

from typing import Any

from steincritic.errors import InputError
from steincritic.models.adapters.outside import require
from steincritic.models.density import FlowModel


def adapt(obj: Any) -> FlowModel | None:
    normflows = require("normflows", extra="normflows")
    if isinstance(obj, normflows.ConditionalNormalizingFlow):
        raise InputError(
            "a conditional flow has one density for each context: pass a pair (score, sample) that fixes it"
        )
    if isinstance(obj, normflows.NormalizingFlow):
        return FlowModel(obj.log_prob, lambda n: obj.sample(n)[0])
    return None
