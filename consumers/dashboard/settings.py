"""Settings of the dashboard."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from claw_r1.consumers.web.settings import PageSettings
from claw_r1.runtime.monitoring.server import MetricsHost, MetricsPort


class DashboardSettings(PageSettings):
    """Environment: `CLAW_DASHBOARD_<FIELD>`."""

    model_config = SettingsConfigDict(env_prefix="CLAW_DASHBOARD_", cli_shortcuts={"as-json": "json"})

    tokenizer: Path | None = None
    """Folder with the `tokenizer.json` that tokens are read by; default: that of the model that a
    trajectory's run names."""
    rewards: Path | None = None
    """A rewards.yaml whose scorers the Rewards view may try on trajectories; default: it tries none."""
    open: bool = False
    """Open the page in a browser."""
    view: str = Field(default="", pattern="^[a-z]*$")
    """Name of the view whose address is printed and opened, such as curation."""
    metrics_port: MetricsPort = None
    metrics_host: MetricsHost = "127.0.0.1"
    as_json: bool = False
    """Print address and state as one JSON object."""
