import sys

from experiments.frame.cli import main

sys.exit(main(sys.argv[1:]))
