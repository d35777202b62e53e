"""`python -m hedgelab` is the command line."""

from hedgelab.cli import app

if __name__ == "__main__":
    app()
