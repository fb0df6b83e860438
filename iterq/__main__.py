"""`python -m iterq` is the command `iterq`."""

from iterq.cli import main

main()
