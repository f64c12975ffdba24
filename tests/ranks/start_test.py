"""How ranks find rank 0: those that come before it knock at its port again and again, from ports that may be that one;
its name may be an address of IPv6 first."""

import fcntl
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys

import pytest
from program import environment, free_port, wait_until
from resume_test import train_command
from tiny_models import training_inputs

PORTS = range(40000, 40032)  # all that there are: that of the ranks' meeting is soon one which a rank knocks from
RANKS = 3


def bring_up_loopback():
    up, name_and_flags = 1, "16sh"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, 0x8914, struct.pack(name_and_flags, b"lo", up))  # SIOCSIFFLAGS


def knocks():
    """Connections of this network that nobody took."""
    names, numbers = [
        line.split() for line in pathlib.Path("/proc/net/snmp").read_text().splitlines() if line.startswith("Tcp:")
    ]
    return int(numbers[names.index("AttemptFails")])


def train_in_own_network(lines):
    """In a network of its own: starts rank 0 when the others have knocked for a while. Ends with 0 if all do."""
    bring_up_loopback()
    pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").write_text(f"{PORTS.start} {PORTS.stop - 1}")
    shared = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(PORTS.start + 9)}
    ranks = []
    for rank in (1, 2, 0):
        if rank == 0:
            wait_until(lambda: knocks() > 2 * len(PORTS))
        ranks.append(subprocess.Popen(lines, env=environment(RANK=str(rank), **shared)))
    codes = [rank.wait() for rank in ranks]
    return int(any(codes))


def train_where_localhost_is_ipv6(lines, hosts):
    """As Debian has it. Ends with 0 if both ranks do."""
    subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
    ranks = [subprocess.Popen(lines, env=environment(RANK=str(rank), **shared)) for rank in range(2)]
    codes = [rank.wait() for rank in ranks]
    return int(any(codes))


def start_alone(space, tmp_path, ranks, *arguments):
    """This file as a program of its own, in a `space` of its own, with a line that trains."""
    alone = ["unshare", "--map-root-user", space]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], capture_output=True).returncode != 0:
        pytest.skip(f"this user cannot {' '.join(alone)}")
    line = train_command(training_inputs(tmp_path), tmp_path / "run", ranks, ranks=1, max_steps=2)
    start = [*alone, sys.executable, __file__, json.dumps([str(word) for word in line]), *map(str, arguments)]
    outcome = subprocess.run(start, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, timeout=120)
    assert outcome.returncode == 0
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_early_ranks_do_not_take_the_port_of_rank_zero(tmp_path):
    start_alone("--net", tmp_path, RANKS)


def test_ranks_meet_where_localhost_is_an_address_of_ipv6_first(tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("::1 localhost ip6-localhost\n127.0.0.1 localhost\n")
    start_alone("--mount", tmp_path, 2, hosts)


if __name__ == "__main__":
    train = train_where_localhost_is_ipv6 if sys.argv[2:] else train_in_own_network
    sys.exit(train(json.loads(sys.argv[1]), *sys.argv[2:]))
