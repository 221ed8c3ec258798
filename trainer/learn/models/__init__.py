"""Models beside the policy: the critic, which learns with it, the frozen reference, and the adapters, which
alone learn in a policy that has them."""
