"""Settings of the feedback page."""

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from claw_r1.consumers.web.settings import PageSettings


class FeedbackPageSettings(PageSettings):
    """Environment: `CLAW_FEEDBACK_<FIELD>`."""

    model_config = SettingsConfigDict(env_prefix="CLAW_FEEDBACK_")

    port: int = Field(default=8201, ge=0, le=65_535)
    """Port to listen on; 0: any free one."""
