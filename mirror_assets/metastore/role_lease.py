"""A role that one process at a time may hold, by the database's clock.

The holder renews it; when it dies the lease lapses, and whoever asks next has it. It keeps two
processes from doing the same work twice: what must not happen twice is guarded by the fences of
`mirror_queue`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import delete, or_, select
from sqlalchemy.exc import IntegrityError

from mirror_assets.metastore.database import Metastore
from mirror_assets.metastore.tables import dl_settings

_SCOPE: Final = "@role"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleLease:
    """One holder's view of one role."""

    metastore: Metastore
    role: str
    owner: str
    lease_ms: int

    def hold(self) -> bool:
        """Take the role or renew it; False while another holds it."""
        row = dl_settings
        is_role = (row.c.scope == _SCOPE, row.c.key == self.role)
        if self._is_anothers():
            return False
        try:
            with self.metastore.write() as connection:
                now_ms = int(
                    connection.execute(select(self.metastore.dialect.now_ms())).scalar_one()
                )
                values = {"value": self.owner, "updated_at_ms": now_ms + self.lease_ms}
                free = or_(row.c.value == self.owner, row.c.updated_at_ms <= now_ms)
                update = row.update().where(*is_role, free).values(values)
                if connection.execute(update.returning(row.c.key)).first() is not None:
                    return True
                if connection.execute(select(row.c.key).where(*is_role)).first() is not None:
                    return False
                connection.execute(
                    row.insert(),
                    {"scope": _SCOPE, "key": self.role, "revision": 1, **values},
                )
        except IntegrityError:  # another inserted the row at the same moment
            return False
        return True

    def release(self) -> None:
        """Give the role back, if it is ours, so that the next one need not wait."""
        row = dl_settings
        is_ours = (row.c.scope == _SCOPE, row.c.key == self.role, row.c.value == self.owner)
        with self.metastore.write() as connection:
            connection.execute(delete(row).where(*is_ours))

    def _is_anothers(self) -> bool:
        """A look without the writer's lock: those who wait ask often."""
        row = dl_settings
        query = select(row.c.value, row.c.updated_at_ms, self.metastore.dialect.now_ms())
        with self.metastore.read() as connection:
            found = connection.execute(
                query.where(row.c.scope == _SCOPE, row.c.key == self.role)
            ).first()
        return found is not None and found[0] != self.owner and int(found[1]) > int(found[2])
