"""Delta Spark, the reference implementation, as an independent reader."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from mirror_assets.conformance.digests import digest_of
from mirror_assets.conformance.readers import Refused, Seen, names_below
from mirror_assets.delta.locations import Location
from mirror_assets.storage.options import StoreOptions


class SparkReader:
    """See Reader; the session must have Delta, and s3a where tables lie in S3."""

    name = "spark"

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        """The session is opened when it is first asked: a JVM is large."""
        self._open = session
        self._session: SparkSession | None = None

    def read(self, place: Location, version: int, options: StoreOptions) -> Seen | Refused:
        """See Reader. How a store is reached is a matter of the session."""
        del options
        if self._session is None:
            self._session = self._open()
        where = place.path if place.scheme == "file" else place.uri.replace("s3://", "s3a://", 1)
        frame = self._session.read.format("delta").option("versionAsOf", str(version)).load(where)
        rows, digest = digest_of(frame.toArrow().to_batches())
        files = frame.inputFiles()
        paths = names_below(place, files, encoded=False) if rows else None
        return Seen(rows=rows, digest=digest, files=len(files) if rows else None, paths=paths)

    def close(self) -> None:
        """See Reader: stop the session."""
        if self._session is not None:
            self._session.stop()
            self._session = None
