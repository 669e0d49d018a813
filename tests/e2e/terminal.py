#!/usr/bin/env python3
"""Runs a command on a terminal of its own: terminal.py COLUMNS COMMAND... Prints what it wrote there; its exit code is the
command's."""
import fcntl
import os
import pty
import struct
import sys
import termios


def main():
    pid, fd = pty.fork()
    if pid == 0:
        os.execvp(sys.argv[2], sys.argv[2:])
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, int(sys.argv[1]), 0, 0))
    out = b""
    while True:
        try:
            got = os.read(fd, 65536)
        except OSError:
            break
        if not got:
            break
        out += got
    sys.stdout.buffer.write(out)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


main()
