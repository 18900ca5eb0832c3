"""``python -m studies`` is ``cje-lab``."""

from studies.cli.app import main

if __name__ == "__main__":
    main()
