"""Data that go by in one pass, for the commands that test them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from steincritic.cli.dry_run import DryRun, Teller
from steincritic.cli.options import doubts_in_the_result, object_named, parse_bounds

if TYPE_CHECKING:
    from steincritic.data.source import Source
    from steincritic.gof.forecast import Part
    from steincritic.gof.large import WentBy
    from steincritic.models import base


@dataclass(frozen=True, kw_only=True)
class LargeData(DryRun):
    """What `check` and `test` share."""

    def afterward(self, model: "base.Model", source: "Source") -> "Callable[[], Part] | None":
        """How long what follows the test takes."""
        return None

    def went_by(self, teller: Teller) -> "WentBy | None":
        """The result where rows are so many that they go by in one pass; None where they are loaded."""
        from steincritic.data.source import FileSource
        from steincritic.gof.choose import choose_test, in_one_pass
        from steincritic.gof.large import large_source
        from steincritic.models.base import as_model
        from steincritic.models.conditional import is_conditional

        source = large_source(FileSource(self.data, self.chosen(), self.drop_nan))
        if source is None or self.fitted or self.dependent or self.target or self.tolerance:
            return None
        named = object_named(self.model)
        if is_conditional(named):
            return None
        model = as_model(named)
        chosen, reason = choose_test(self.test, model, source.rows)
        teller.then = self.afterward(model, source)
        with doubts_in_the_result():
            by = in_one_pass(
                model,
                source,
                self.with_settings(chosen),
                self.level,
                self.seed,
                self.device,
                names=None,
                bounds=parse_bounds(self.bounds),
                before=teller,
            )
        if by is None or reason is None:
            return by
        notes = (f"Test {chosen.name}: {reason}.", *by.result.notes)
        return replace(by, result=replace(by.result, notes=notes))
