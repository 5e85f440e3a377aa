# needs: sklearn
"""
A scikit-learn mixture on a CSV file
====================================

Four measurements of cell nuclei are in a file with named columns. Does a mixture of three normal laws
describe them, and if not, which columns are wrong?
"""

import csv
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

import steincritic as sc

try:
    from sklearn.datasets import load_breast_cancer
    from sklearn.mixture import GaussianMixture
except ImportError:
    raise SystemExit("this example needs scikit-learn: pip install 'steincritic[sklearn]'") from None

# %%
# The file: 569 rows, as one would have it from a laboratory. Half of the rows fit the model, the other
# half test it. A model that is tested on its own rows looks better than it is.

NAMES = ["mean radius", "mean texture", "mean smoothness", "mean symmetry"]
table = load_breast_cancer()
columns = [list(table.feature_names).index(name) for name in NAMES]
folder = Path(tempfile.mkdtemp())
for name, rows in (("fit.csv", table.data[::2, columns]), ("test.csv", table.data[1::2, columns])):
    with open(folder / name, "w", newline="") as file:
        csv.writer(file).writerows([NAMES, *rows.tolist()])

# %%
# Fit, then check. ``check`` takes the fitted mixture as it is, and the path of the file.

fit = sc.data.read_table(folder / "fit.csv").x
independent = GaussianMixture(3, covariance_type="diag", random_state=0).fit(fit)
result = sc.check(independent, folder / "test.csv", seed=0)
print(result.summary())

# %%
# The columns of each component are independent in this mixture, and cells are not: the first findings,
# as pictures.

fig, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for number, ax in enumerate(axes):
    result.plot_finding(number, ax=ax)
plt.show()

# %%
# Full covariances let columns go together. Is that enough?

full = GaussianMixture(3, covariance_type="full", random_state=0).fit(fit)
print(sc.check(full, folder / "test.csv", seed=0).summary())

# %%
# Next: ``result.save("report")`` writes the whole report as a page; ``steincritic check test.csv
# --model model.py:full`` does all of this from a terminal.
