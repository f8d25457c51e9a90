"""What Dagster loads; `workspace.yaml` names this module.

Everything that knows Dagster lives in `mirror_assets.defs` and is gathered here.
"""

from mirror_assets.defs.build import build_definitions

defs = build_definitions()
