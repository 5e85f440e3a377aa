"""What tests of studies share."""

import shlex

import pytest

from studies.__main__ import main


@pytest.fixture
def reproduce(capsys):
    """`python -m studies` in this process: exit code, standard output, standard error."""

    def call(line):
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(line))
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return call
