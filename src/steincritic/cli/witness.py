"""witness: the witness of new data under a saved critic, for tables of any size."""

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from steincritic.cli.guard import FITS, described
from steincritic.cli.options import Common, Data, Model, OnDevice, check_writable, model_named
from steincritic.cli.parse import ADVANCED, POSITIONAL
from steincritic.errors import InputError, check_count

if TYPE_CHECKING:
    from steincritic.diagnosis.witness import Summary


@dataclass(frozen=True, kw_only=True)
class Witness(Common, OnDevice, Model, Data):
    """Apply a saved critic to new data: one witness value per row, large where the model fails.

    Data of any size are read and written in chunks. On draws of the model the witness has mean zero.
    """

    data: Annotated[
        Path, POSITIONAL, "npy, npz, csv or parquet file, or folder of parquet files; - for csv on stdin."
    ]
    critic: Annotated[Path, "A critic as check or Critic.save writes it."]
    out: Annotated[
        Path | None, "csv file for row (from 0), line, id, witness, pvalue and what contributes most."
    ] = None
    chunk: Annotated[int, ADVANCED, "Rows held in memory at a time."] = 100_000
    draws: Annotated[int, ADVANCED, "Draws of the model that rows are ranked among, for their p-values."] = (
        1999
    )

    takes_stdin: ClassVar[bool] = True
    folder: ClassVar[None] = None  # --out is a file

    def check(self) -> None:
        super().check()
        if not self.critic.is_file():
            raise InputError(f"no such file: {self.critic}")
        check_count(self.chunk, name="chunk")
        check_count(self.draws, name="draws")
        if self.out is not None:
            read = {self.data: "data", self.critic: "critic", Path(self.model.rpartition(":")[0]): "model"}
            for path, name in read.items():
                if self.out.resolve() == path.resolve():
                    raise InputError(f"--out {self.out} is the {name}; name another file")
            check_writable(self.out)

    def __call__(self) -> int:
        import torch

        from steincritic.data.points import arranged
        from steincritic.data.tables import estimated_rows, read_chunks
        from steincritic.devices import resolve_device
        from steincritic.diagnosis.witness import Judge, Summary
        from steincritic.files import atomic_file, csv_text
        from steincritic.training.critic import load_critic
        from steincritic.training.progress import StepBar

        model = model_named(self.model)
        device = resolve_device(self.device, torch.empty(0))
        judge = Judge.of(load_critic(self.critic, model).to(device), model, self.draws)
        chunks = read_chunks(self.data, rows=self.chunk, drop_nan=self.drop_nan, columns=self.chosen)
        summary = Summary()
        with (
            StepBar("rows", estimated_rows(self.data)) as bar,
            nullcontext() if self.out is None else atomic_file(self.out) as file,
        ):
            for chunk in chunks:
                values, cells = judge(arranged(chunk, model))
                if file is not None:
                    file.write(csv_text(cells, header=file.tell() == 0).encode())
                summary.add(values, cells, chunk.dropped)
                bar.advance(len(values) + chunk.dropped)
        if summary.rows == 0:
            raise InputError(f"no row of {self.data} is free of NaN and infinite values")
        about = {"model": self.model, "critic": str(self.critic), "data": str(self.data)}
        content = described(summary.to_dict(), command="witness", **about)
        self.tell(content, lambda: self._print(summary))
        return FITS

    def _print(self, summary: "Summary") -> None:
        from steincritic.cli.out import print_lines, print_table
        from steincritic.data.tables import STDIN

        dropped = f", {summary.dropped} left out" if summary.dropped else ""
        name = "standard input" if str(self.data) == STDIN else str(self.data)
        error = "none" if summary.standard_error is None else f"{summary.standard_error:.2g}"
        print_lines(
            f"{name} under {self.critic}: {summary.rows} rows{dropped}",
            f"Mean witness {summary.mean:.5g}, standard error {error}",
        )
        largest = [
            [f"{v:.5g}" if isinstance(v, float) else str(v) for v in row.values()] for row in summary.largest
        ]
        print_table(tuple(summary.largest[0]), largest, title="Largest", left=True)
        if self.out is not None:
            print_lines(f"File: {self.out}")
