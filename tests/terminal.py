"""A terminal for tests: a command runs in a pseudo-terminal, and the screen is kept that a person would see."""

import codecs
import fcntl
import io
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable
from itertools import groupby

import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text


class Terminal:
    """Use it with ``with``; what still runs is killed in the end, with everything it started in its session."""

    def __init__(self, command: list[str], columns: int, rows: int, **environment: str) -> None:
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.Stream(self._screen)
        self._lock = threading.Lock()
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        env = {**os.environ, "TERM": "xterm-256color", **environment}
        env.pop("COLUMNS", None), env.pop("LINES", None), env.pop("NO_COLOR", None)
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True, preexec_fn=_controls
        )
        os.close(theirs)
        self.typed = ""
        """Everything that was written, with the control sequences."""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._thread.join(10)
        os.close(self._ours)

    def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while True:
            try:
                data = os.read(self._ours, 65_536)
            except OSError:  # Linux says so when the other side is closed
                return
            if not data:
                return
            text = decoder.decode(data)
            with self._lock:
                self.typed += text
                self._stream.feed(text)

    @property
    def lines(self) -> list[str]:
        with self._lock:
            return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def colours(self) -> set[str]:
        with self._lock:
            return {character.fg for row in self._screen.buffer.values() for character in row.values()}

    def resize(self, columns: int, rows: int) -> None:
        with self._lock:
            self._screen.resize(rows, columns)
            self._screen.reset()
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def svg(self, title: str) -> str:
        """A picture of the screen, in its colours."""
        with self._lock:
            columns, rows = self._screen.columns, self._screen.lines
            console = Console(width=columns, height=rows, file=io.StringIO(), record=True, force_terminal=True)
            for row in range(rows):
                cells = [self._screen.buffer[row][column] for column in range(columns)]
                line = Text()
                for style, same in groupby(cells, _style):
                    line.append("".join(one.data for one in same), style)
                console.print(line, no_wrap=True, overflow="crop")
        # Without the fonts of somebody else's server: every reader has one for terminals.
        return re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title=title), flags=re.DOTALL)

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def wait_until(self, seen: Callable[[str], object], seconds: float, what: str) -> float:
        """Until the screen is as it should; how long that was after the start."""
        until = time.monotonic() + seconds
        while not seen(self.text):
            over = self.process.poll() is not None and not self._thread.is_alive()
            assert not over and time.monotonic() < until, f"never seen: {what}; on the screen was\n{self.text}"
            time.sleep(0.05)
        return time.monotonic() - self.began

    def end(self, seconds: float) -> int:
        """Wait for the command to end; its exit code."""
        code = self.process.wait(seconds)
        self._thread.join(10)
        return code


def _style(one: pyte.screens.Char) -> Style:
    def colour(name: str) -> str | None:
        return None if name == "default" else {"brown": "yellow"}.get(name, name)

    plain = {
        name: None if name is None else name.replace("bright", "bright_") for name in (colour(one.fg), colour(one.bg))
    }
    return Style(color=plain[colour(one.fg)], bgcolor=plain[colour(one.bg)], bold=one.bold, reverse=one.reverse)


def _controls() -> None:
    """In the child: Ctrl-C in this terminal reaches it."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
