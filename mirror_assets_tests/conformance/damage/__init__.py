"""Kinds of damage to a healthy log, each with the rule that must find it.

A kind is a function that changes a log in place and says whether it applies to its shape.
"""

from mirror_assets_tests.conformance.damage import (  # noqa: F401 - they register their kinds
    checkpoints,
    commit_bytes,
    documents,
    features,
    file_actions,
    files,
    lone_checkpoints,
    table_actions,
)
from mirror_assets_tests.conformance.damage.kinds import DAMAGES as DAMAGES
