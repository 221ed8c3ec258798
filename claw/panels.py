"""The headings under which `claw --help` lists its commands: one for each kind of reader."""

STACK = "The local stack"
AUTHORS = "Agent authors"
ENGINEERS = "RL engineers"
DATA = "Data people"
OPERATORS = "Operators"
