#!/usr/bin/env python3
"""The health check of a room's image: `alive PORT` ends with 0 where /livez of that port answers 200 (docs/metrics.md)."""

import http.client
import sys

connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=3)
connection.request("GET", "/livez")
sys.exit(0 if connection.getresponse().status == http.client.OK else 1)
