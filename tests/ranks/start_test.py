"""Ranks that come before rank 0 knock at its port again and again, from ports that may be that one."""

import fcntl
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import time

import pytest
from program import environment
from resume_test import train_command
from tiny_models import training_inputs

PORTS = range(40000, 40032)  # all that there are: that of the ranks' meeting is soon one which a rank knocks from
RANKS = 3


def bring_up_loopback():
    up, name_and_flags = 1, "16sh"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, 0x8914, struct.pack(name_and_flags, b"lo", up))  # SIOCSIFFLAGS


def train_in_own_network(lines):
    """In a network of its own: starts rank 0 when the others have knocked for a while. Ends with 0 if all do."""
    bring_up_loopback()
    pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").write_text(f"{PORTS.start} {PORTS.stop - 1}")
    shared = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(PORTS.start + 9)}
    ranks = []
    for rank in (1, 2, 0):
        time.sleep(1.5 if rank == 0 else 0)
        ranks.append(subprocess.Popen(lines, env=environment(RANK=str(rank), **shared)))
    codes = [rank.wait() for rank in ranks]
    return int(any(codes))


def test_early_ranks_do_not_take_the_port_of_rank_zero(tmp_path):
    alone = ["unshare", "--map-root-user", "--net"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], capture_output=True).returncode != 0:
        pytest.skip("this user cannot make a network of its own")
    line = train_command(training_inputs(tmp_path), tmp_path / "run", RANKS, ranks=1, max_steps=2)
    start = [*alone, sys.executable, __file__, json.dumps([str(word) for word in line])]
    outcome = subprocess.run(start, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, timeout=120)
    assert outcome.returncode == 0
    assert (tmp_path / "run" / "model.safetensors").exists()


if __name__ == "__main__":
    sys.exit(train_in_own_network(json.loads(sys.argv[1])))
