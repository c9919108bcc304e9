"""A user's machine, for keepers that are processes: ``pluribus keep --machine counter=tests.real.counted:Counter``."""


class Counter:
    version = 1

    def __init__(self) -> None:
        self.count = 0

    def apply(self, index: int, command: bytes) -> bytes:
        self.count += int(command)
        return str(self.count).encode()

    def query(self, question: bytes) -> bytes:
        return str(self.count).encode()

    def snapshot(self) -> bytes:
        return str(self.count).encode()

    def restore(self, state: bytes) -> None:
        self.count = int(state or b"0")
