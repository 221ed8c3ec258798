"""Programs that go into sandboxes as files: the code's server in one, the tests with a stand-in for the code in the other.

Standard library only, and each is whole with `wire.py`: nothing else of ours lies there (the folders above it have no files).
"""
