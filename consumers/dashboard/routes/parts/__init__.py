"""Routes that several views ask, as `static/parts/` is what several show."""
