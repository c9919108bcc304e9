"""``python -m pluribus`` is the command ``pluribus``."""

from pluribus.cli.app import main

if __name__ == "__main__":
    main()
