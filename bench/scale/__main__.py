"""More processes, and other hosts: what they bring, and what a call between hosts takes.

`streams`: facts per second of wall time from the first that is published to the last
that is folded, by one worker and by three. `gateways`: calls per second of one process
and of four behind one port. Both ratios are of one machine with the load, the broker
and the upstream on it: on two cores they do not say how far more processes go.

`wire`: one call after the other through a gateway, everything on one host and each
process on its own (network namespaces; needs root), milliseconds at the client.
"""

from bench.report import Bench

BENCH = Bench(
    name="scale",
    about=__doc__,
    parts={part: f"bench.scale.parts:{part}" for part in ("streams", "gateways", "wire")},
    sizes={"repeats": 3, "groups": 160, "calls": 3000},
)

if __name__ == "__main__":
    BENCH.main()
