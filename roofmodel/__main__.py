"""`python -m roofmodel`, and the `roof` script: the command line as a process of its own."""

import gc


def main() -> None:
    """Run the command line. A process this short is over before collecting garbage would pay."""
    gc.disable()
    from roofmodel.cli import main as run

    run()


if __name__ == "__main__":
    main()
