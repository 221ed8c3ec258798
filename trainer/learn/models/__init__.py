"""Models beside the policy: the critic, which learns with it, the reference, which stays as it is; and the adapters, by which
alone a policy learns where it has them."""
