"""`python -m mirror_assets_tests.cli.run WORD...`: the command line as a process of its own."""

from mirror_assets.cli.app import main

main()
