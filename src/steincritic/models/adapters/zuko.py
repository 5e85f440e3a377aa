"""zuko: flows as modules, and the distributions they become."""

from typing import Any

from torch.distributions import Distribution

from steincritic.errors import InputError
from steincritic.models.adapters.outside import require
from steincritic.models.coordinates import of_distribution
from steincritic.models.density import FlowModel


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
        if not hasattr(obj, "base") and of_distribution(obj) is not None:
            return None  # a plain one in a box, which as_model takes
        _check_base(obj)
        return FlowModel(obj.log_prob, lambda n: obj.sample((n,)))
    return None


def _check_base(distribution: Distribution) -> None:
    """zuko's flows do not state their support; a flow from a base with edges has edges too."""
    if of_distribution(getattr(distribution, "base", distribution)) is not None:
        raise InputError(
            "the flow starts from a base with edges, so it has edges too, and where they are is not known: "
            "give it a base on all of space, such as a normal"
        )
