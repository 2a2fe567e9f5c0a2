"""`python -m blockswarm.cli`."""

from blockswarm.cli.app import main

if __name__ == "__main__":
    main()
