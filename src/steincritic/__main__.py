"""`python -m steincritic` is the `steincritic` command."""

from steincritic.cli import main

if __name__ == "__main__":
    main()
