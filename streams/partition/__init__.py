"""Everything that a worker derives of one partition: facts in, one batch of rows out per flush. Pure; rows at rest lie
behind a seam."""
