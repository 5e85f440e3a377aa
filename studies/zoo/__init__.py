"""A zoo of faults: which test sees which, and what the default costs against the best in hindsight."""
