"""Models beside the policy: the critic, which learns with it, and the reference, which stays as it is."""
