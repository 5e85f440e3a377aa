"""Where a model fails: points, coordinates, regions; and how far."""

from steincritic.diagnosis.diagnose import Diagnosis, diagnose

__all__ = ["Diagnosis", "diagnose"]
