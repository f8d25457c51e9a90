"""A Spark session that writes what Delta expects: the one place that knows Spark's settings.

`local[*]` by default, any master URL, or `sc://host:port` for a server of Spark Connect, which
brings its own jars and memory: there only the settings of SQL are ours.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import SparkSession

from mirror_assets.storage.options import StoreOptions

#: what a session must say whoever started it; all can be set while it runs
SQL_SETTINGS: Final = {
    # INT96, the default, has no usable bounds
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.session.timeZone": "UTC",
}
_QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_SETTINGS: Final = {
    # version 2 may leave the files of a lost attempt beside those of the winner
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "1",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
#: PySpark's own choice, where nobody made one
_ANY_PYTHON: Final = "python3"
_LOCAL: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
}
_DELTA: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_DELTA_PACKAGE: Final = "io.delta:delta-spark_4.2_2.13:4.4.0"
#: Spark brings these itself, the first two in a newer version
_DELTA_EXCLUDES: Final = (
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.parquet:parquet-hadoop",
    "org.apache.parquet:parquet-column",
    "org.apache.parquet:parquet-common",
    "org.apache.parquet:parquet-encoding",
    "org.apache.parquet:parquet-format-structures",
    "org.apache.parquet:parquet-jackson",
    "org.apache.logging.log4j:log4j-api",
    "org.apache.logging.log4j:log4j-core",
    "org.apache.logging.log4j:log4j-slf4j2-impl",
    "org.apache.logging.log4j:log4j-1.2-api",
    "org.slf4j:slf4j-api",
    "com.fasterxml.jackson.core:jackson-core",
    "com.fasterxml.jackson.core:jackson-databind",
    "com.fasterxml.jackson.core:jackson-annotations",
    "com.github.luben:zstd-jni",
    "org.xerial.snappy:snappy-java",
    "io.airlift:aircompressor",
)
#: the smallest set found that reads and writes s3a:// with Spark's Hadoop 3.5.0
_S3A_PACKAGES: Final = (
    "org.apache.hadoop:hadoop-aws:3.5.0",
    *(
        f"software.amazon.awssdk:{name}:2.35.4"
        for name in ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
    ),
)
_S3A_EXCLUDES: Final = ("software.amazon.awssdk:bundle", "org.wildfly.openssl:wildfly-openssl")
_SIMPLE_CREDENTIALS: Final = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """What a session should be like."""

    #: None: as `spark-submit` was told, with its memory and its pages; `local[*]` if nobody said
    master: str | None = "local[*]"
    app_name: str = "mirror-assets"
    #: of the driver; a running JVM keeps what it has
    memory: str = "1g"
    #: Delta's own reader and writer, to compare with
    delta: bool = False
    #: how s3a:// is reached; None: no jars for it are loaded
    s3: StoreOptions | None = None
    #: jars resolved before; then no package is downloaded
    jars: Sequence[str] = ()
    #: anything else, and what is to be different
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_connect(self) -> bool:
        """Whether a server of Spark Connect does the work."""
        return self.master is not None and self.master.startswith("sc://")


def open_session(options: SparkOptions | None = None) -> SparkSession:
    """Start a session, or take the one that runs."""
    options = options or SparkOptions()
    builder: Any = SparkSession.builder
    if options.is_connect:
        session: SparkSession = builder.remote(options.master).getOrCreate()
    else:
        builder = builder.appName(options.app_name)
        if options.master is not None:
            builder = builder.master(options.master)
        for name, value in settings_of(options).items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        _use_this_python(session)
    for name, value in SQL_SETTINGS.items():
        session.conf.set(name, value)
    return session


def _use_this_python(session: SparkSession) -> None:
    """On this machine, tasks run in this environment, unless PYSPARK_PYTHON names another."""
    context: Any = session.sparkContext
    if context.master.startswith("local") and context.pythonExec == _ANY_PYTHON:
        context.pythonExec = sys.executable


def settings_of(options: SparkOptions) -> dict[str, str]:
    """Every setting of a session that this process starts."""
    settings = {**_SETTINGS, **SQL_SETTINGS}
    if options.master is not None:
        settings |= {**_QUIET, "spark.driver.memory": options.memory}
        if options.master.startswith("local"):
            settings |= _LOCAL
    packages: list[str] = []
    excludes: list[str] = []
    if options.delta:
        settings |= _DELTA
        packages.append(_DELTA_PACKAGE)
        excludes += _DELTA_EXCLUDES
    if options.s3 is None:
        # without a shadow of checksums beside each local data file; S3A's buffers need the other
        settings["spark.hadoop.fs.file.impl"] = "org.apache.hadoop.fs.RawLocalFileSystem"
    else:
        settings |= _s3a(options.s3)
        packages += _S3A_PACKAGES
        excludes += _S3A_EXCLUDES
    if options.jars:
        settings["spark.jars"] = ",".join(options.jars)
    elif packages:
        settings["spark.jars.packages"] = ",".join(packages)
        settings["spark.jars.excludes"] = ",".join(excludes)
    return {**settings, **options.conf}


def _s3a(store: StoreOptions) -> dict[str, str]:
    prefix = "spark.hadoop.fs.s3a"
    settings = {f"{prefix}.path.style.access": str(store.path_style).lower()}
    if store.endpoint is not None:
        settings[f"{prefix}.endpoint"] = store.endpoint
    if store.region is not None:
        settings[f"{prefix}.endpoint.region"] = store.region
    secrets = {name: secret.reveal() for name, secret in store.credentials}
    if "access_key_id" in secrets:
        settings[f"{prefix}.access.key"] = secrets["access_key_id"]
        settings[f"{prefix}.secret.key"] = secrets.get("secret_access_key", "")
        settings[f"{prefix}.aws.credentials.provider"] = _SIMPLE_CREDENTIALS
    return settings
