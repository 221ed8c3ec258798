"""Facts into records, one group at a time. Pure: no clock, no setting, no disk and no log."""
