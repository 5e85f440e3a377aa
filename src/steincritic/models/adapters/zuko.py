"""zuko: flows as modules, and the distributions they become."""

from typing import Any

from torch.distributions import Distribution

from steincritic.errors import InputError
from steincritic.models.adapters.flow import FlowModel
from steincritic.models.adapters.outside import require
from steincritic.models.density import check_support


def adapt(obj: Any) -> FlowModel | None:
    """A flow without context, or `flow(context)` for one context."""
    zuko = require("zuko", extra="zuko")
    if isinstance(obj, zuko.lazy.LazyDistribution):
        try:
            made = obj()
            # called anew each time: a distribution made once would keep old weights
            model = FlowModel(lambda x: obj().log_prob(x), lambda n: obj().sample((n,)))
        except (RuntimeError, TypeError, AttributeError) as error:
            raise InputError(
                f"the flow cannot be called without a context ({type(error).__name__}): pass flow(context), "
                "with one context vector"
            ) from None
        _check_base(made)
        return model
    if isinstance(obj, Distribution):
        _check_base(obj)
        return FlowModel(obj.log_prob, lambda n: obj.sample((n,)))
    return None


def _check_base(distribution: Distribution) -> None:
    """zuko's flows do not state their support; a flow from a base with edges has edges too."""
    check_support(getattr(distribution, "base", distribution))
