"""`claw topics`: the catalogue on a broker, what each room may do there, and a log copied to another place."""
