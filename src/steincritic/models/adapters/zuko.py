"""zuko: flows as modules, and the distributions they become."""

from typing import Any

from torch.distributions import Distribution

from steincritic.errors import InputError
from steincritic.models.adapters.flow import FlowModel
from steincritic.models.adapters.outside import require


def adapt(obj: Any) -> FlowModel | None:
    """A flow without context, or `flow(context)` for one context."""
    zuko = require("zuko", extra="zuko")
    if isinstance(obj, zuko.lazy.LazyDistribution):
        try:
            # called anew each time: a distribution made once would keep old weights
            return FlowModel(lambda x: obj().log_prob(x), lambda n: obj().sample((n,)))
        except (RuntimeError, TypeError, AttributeError) as error:
            raise InputError(
                f"the flow cannot be called without a context ({type(error).__name__}): pass flow(context), "
                "with one context vector"
            ) from None
    if isinstance(obj, Distribution):
        return FlowModel(obj.log_prob, lambda n: obj.sample((n,)))
    return None
