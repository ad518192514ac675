"""`python -m recon_core`."""

from recon_core.cli import main

if __name__ == "__main__":
    main()
