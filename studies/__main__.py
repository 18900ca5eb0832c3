"""``python -m studies`` is ``cje-lab``: what is interrupted says so in one line, at whatever moment."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C while libraries are still being imported is answered as later on."""
    try:
        from studies.cli.brief import be_brief

        be_brief(sys.argv)
        from studies.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("cje-lab: interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
