"""``python -m fivesigma`` is the command ``fivesigma``."""

from fivesigma.cli import main

if __name__ == "__main__":
    main(prog_name="fivesigma")
