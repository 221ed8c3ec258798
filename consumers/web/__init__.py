"""The shell of our pages: app factory, sign-in, headers, live stream, vendored libraries. Imported by pages alone."""
