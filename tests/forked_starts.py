"""Starts of one program, whose libraries are loaded only once: see forked_starts.cpp."""

import array
import os
import pathlib
import signal
import socket
import subprocess

MOST_BYTES = 100_000  # of a request: a message of a socket has a limit
NOT_OF_LIBRARIES = ("STRAKE_", "PYTEST_")  # other variables may have been read when libraries were loaded

NO_THREADS = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}  # there is none of them after a fork


class ForkedStarts:
    """A process of `program` that forks for every start. Its variables are those of the first start."""

    def __init__(self, library, program, variables):
        self.program, self.variables = program, of_libraries(variables)
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            env = variables | NO_THREADS | {"LD_PRELOAD": library, "STRAKE_TEST_STARTS": str(theirs.fileno())}
            self.process = subprocess.Popen([program], env=env, pass_fds=[theirs.fileno()])
        self.is_ready = len(self.socket.recv(4)) == 4  # else libraries of this machine do not allow it, as it says

    def can_start(self, line, env):
        return line[0] == self.program and of_libraries(env) == self.variables and len(request(line, env)) < MOST_BYTES

    def run(self, line, timeout, env, cwd=None):
        """As subprocess.run with capture_output."""
        with memory_file("out") as out, memory_file("err") as err, pathlib.Path(os.devnull).open() as nothing:
            streams = array.array("i", [file.fileno() for file in (nothing, out, err)])
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)]
            self.socket.settimeout(None)
            self.socket.sendmsg([request(line, env, cwd)], rights)
            pid = self._answer()
            self.socket.settimeout(timeout)
            try:
                status = self._answer()
            except TimeoutError as error:
                self.socket.settimeout(None)
                os.kill(pid, signal.SIGKILL)
                self._answer()
                raise subprocess.TimeoutExpired(line, timeout) from error
            texts = [os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0) for file in (out, err)]
            return subprocess.CompletedProcess(line, os.waitstatus_to_exitcode(status), *texts)

    def _answer(self):
        answer = self.socket.recv(4)
        assert len(answer) == 4, f"{self.program} does not start: exit code {self.process.wait()}"
        return int.from_bytes(answer, "little", signed=True)


def memory_file(name):
    return os.fdopen(os.memfd_create(name), "rb")


def of_libraries(variables):
    return {name: value for name, value in variables.items() if not name.startswith(NOT_OF_LIBRARIES)}


def request(line, env, cwd=None):
    words = [str(cwd or pathlib.Path.cwd()), str(len(line)), *map(str, line), *(f"{name}={env[name]}" for name in env)]
    return b"".join(os.fsencode(word) + b"\0" for word in words)
