"""`python -m mirror_assets.pipeline.jars`: fetch what sessions with Delta and s3a:// load.

Spark keeps it in the cache of the user, where every later session finds it.
"""

from __future__ import annotations

from mirror_assets.pipeline.session import SparkOptions, open_session
from mirror_assets.storage.options import StoreOptions


def main() -> None:
    """Start a session that needs all of it, and end it."""
    open_session(SparkOptions(master="local[1]", delta=True, s3=StoreOptions())).stop()


if __name__ == "__main__":
    main()
