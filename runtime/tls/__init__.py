"""TLS of clients and servers, whose certificates change while they run."""
