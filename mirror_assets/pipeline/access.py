"""How SQL and the stores are reached, here and in Spark's tasks.

A plan travels through Spark's driver, its event log and its web pages, so no secret may stand in
one. What travels is a way to find them: two functions, called where the work is done.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, Self

from mirror_assets.metastore.database import Metastore
from mirror_assets.storage.data_files import DataFiles, open_data_files
from mirror_assets.storage.log_store import LogStore
from mirror_assets.storage.options import StoreOptions
from mirror_assets.storage.stores import open_store


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where the metastore and the stores are; may be pickled, opens what it names once a process.

    For more than one machine, give functions that find the secrets of the machine they run on.
    """

    metastore_url: Callable[[], str]
    store_options: Callable[[], StoreOptions] = field(default=StoreOptions)
    allowed_roots: tuple[str, ...] = ()
    #: places whose stores ignore conditions, where a person vouches that nobody else writes
    single_writer: tuple[str, ...] = ()
    #: whether a version checksum is written beside each commit
    checksums: bool = False

    @classmethod
    def to(cls, metastore_url: str, *, allowed_roots: tuple[str, ...] = ()) -> Self:
        """A metastore whose URL holds no secret, and stores that the host's own chain opens."""
        return cls(metastore_url=_Constant(metastore_url), allowed_roots=allowed_roots)

    def metastore(self) -> Metastore:
        """The metastore; one per process and URL."""
        return _metastore(self.metastore_url())

    def log_store(self, location: str) -> LogStore:
        """The store of a table's log."""
        return open_store(location, self.store_options(), allowed_roots=self.allowed_roots)

    def data_files(self, location: str) -> DataFiles:
        """The data files of a table."""
        return open_data_files(location, self.store_options(), allowed_roots=self.allowed_roots)


@dataclass(frozen=True, slots=True)
class _Constant:
    """A function of no arguments that can be compared and pickled."""

    value: str

    def __call__(self) -> str:
        return self.value


class _Metastores:
    """The metastores of this process, the one used longest ago closed when there are too many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._opened: OrderedDict[str, Metastore] = OrderedDict()
        self._lock = Lock()

    def __call__(self, url: str) -> Metastore:
        with self._lock:
            found = self._opened.pop(url, None) or Metastore.open(url)
            self._opened[url] = found
            if len(self._opened) > self._most:
                _, oldest = self._opened.popitem(last=False)
                oldest.close()
        return found


_metastore: Final = _Metastores(most=16)
