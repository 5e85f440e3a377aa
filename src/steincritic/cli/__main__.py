"""python -m steincritic.cli"""

from steincritic.cli import main

if __name__ == "__main__":
    main()
