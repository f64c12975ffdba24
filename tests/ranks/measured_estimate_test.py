"""strake estimate under a launcher: the ranks that were started measure together, and one of them tells."""

import json
import re
import subprocess

import pytest
from program import command, environment, free_port, is_open_mpi, run, run_mpi, strake
from refusals import FILE, USAGE
from tiny_models import make_model, write_gpt2_tokenizer

COMMUNICATION = r"^  communication, GB/s +[\d.]+  {}$"
HINT = "To have communication measured"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return {"model_name_or_path": make_model(tmp_path_factory.mktemp("estimate") / "bert")}


def number(text, name):
    return float(re.search(rf"^ *{name} +([\d.,]+)", text, re.MULTILINE)[1].replace(",", ""))


def estimate(num_ranks, **flags):
    outcome = run_mpi(num_ranks, command("estimate", **flags))
    assert outcome.code == 0, outcome.err
    assert outcome.out.count("\nall stages\n") == 1, "rank 0 alone prints"
    return outcome.out


def has_communication(told, source):
    return re.search(COMMUNICATION.format(source), told, re.MULTILINE) is not None


def test_the_run_is_what_was_started_and_its_processes_measure(model):
    told = estimate(2, **model)
    assert "; 2 ranks as processes; " in told
    assert number(told, "total of a machine") == pytest.approx(2 * number(told, "total of a rank"), abs=0.2)
    assert has_communication(told, "measured: sums of gradients between the 2 processes")
    assert number(told, "communication, GB/s") > 0
    assert number(told, "arithmetic, GFLOP/s") > 0
    assert number(told, "memory, GB/s") > 0
    assert number(told, "sequences") == 2 * 8
    assert HINT not in told


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_processes_that_keep_everything_take_what_is_planned(tmp_path, num_ranks):
    """Each holds all sums of gradients, but adds up its piece of them first."""
    write_gpt2_tokenizer(tmp_path)
    (tmp_path / "text.txt").write_text("the film was good and the book was not\n" * 200)
    flags = {
        "task": "causal-lm",
        "model_type": "gpt2",
        "tokenizer_name": tmp_path,
        "config_overrides": "n_embd=256,n_head=4,n_layer=2,n_positions=64,vocab_size=2000",
        "train_file": tmp_path / "text.txt",
        "block_size": 64,
        "per_device_train_batch_size": 2,
        "max_steps": 2,
        "save_strategy": "no",
        "output_dir": tmp_path / "out",
        "deepspeed": '{"zero_optimization": {"stage": 0}}',
    }
    planned = run_mpi(num_ranks, command("train", **flags, dry_run=True))
    assert planned.code == 0, planned.err
    done = run_mpi(num_ranks, command("train", **flags))
    assert done.code == 0, done.err
    taken = number(done.out, "peak_tracked_bytes +=") / 2**20
    assert taken == pytest.approx(number(planned.out, "total of a rank"), rel=0.03)


def test_threads_and_processes_that_were_not_started_are_told_how_to_be_measured(model):
    processes = run(command("estimate", **model, ranks=3, processes=True))
    assert f"\n{HINT}, start this as the run is: mpirun -n 3 strake estimate ...\n" in processes.out
    for flags in ({"ranks": 3}, {"processes": True}, {"ranks": 3, "processes": True, "bandwidth": 1}):
        outcome = run(command("estimate", **model, **flags))
        assert outcome.code == 0, outcome.err
        assert HINT not in outcome.out, flags


def test_one_process_under_a_launcher_is_as_without(model):
    told = estimate(1, **model)
    assert "; 1 rank; " in told
    assert "communication" not in told


def test_flags_of_the_run_win(model):
    told = estimate(2, **model, ranks=8)
    assert "; 8 ranks as processes; " in told
    assert has_communication(told, r"assumed: 10 Gbit/s, shared by the 2 ranks of a machine")
    assert f"\n{HINT}, start this on all machines of the run.\n" in told
    speeds = {"gflops": 1, "bandwidth": 1, "memory_bandwidth": 1}
    alone = strake("estimate", **model, **speeds, processes=True, ranks=8, ranks_per_machine=2).out
    assert estimate(2, **model, **speeds, ranks=8) == alone, "processes of several machines share no memory"
    told = estimate(2, **model, ranks=8, ranks_per_machine=8)
    assert number(told, "total of a machine") == pytest.approx(8 * number(told, "total of a rank"), abs=0.5)
    assert has_communication(told, "measured: sums of gradients between the 2 processes")
    told = estimate(2, **model, ranks_per_machine=1)
    assert has_communication(told, "assumed: 10 Gbit/s")


def test_no_more_processes_measure_than_the_run_has(model):
    told = estimate(3, **model, ranks=2)
    assert "; 2 ranks as processes; " in told
    assert has_communication(told, "measured: sums of gradients between the 2 processes")
    alone = estimate(2, **model, ranks=1)
    assert "; 1 rank; " in alone
    assert "communication" not in alone


def test_speeds_that_flags_say_are_not_measured(model):
    speeds = {"gflops": 2, "bandwidth": 0.01, "memory_bandwidth": 0.1}
    told = estimate(2, **model, **speeds)
    assert "measured" not in told
    assert has_communication(told, "--bandwidth")
    same = run(command("estimate", **model, **speeds, ranks=2, processes=True))
    assert same.out == told


def test_groups_of_hybrid_sharding_measure_by_themselves(model):
    zero = json.dumps({"zero_optimization": {"stage": 3, "mics_shard_size": 2}})
    told = estimate(4, **model, deepspeed=zero)
    assert has_communication(told, "measured: sums of gradients between the 4 processes")
    assert re.search(
        r"^    within a group, GB/s +[\d.]+  measured: sums of gradients between the 2 processes of a group$",
        told,
        re.M,
    )


def test_help_and_configuration_are_printed_once(model):
    outcome = run_mpi(2, command("estimate", **model, print_config=True))
    assert outcome.code == 0, outcome.err
    config = json.loads(outcome.out)
    assert config["ranks"] == 2
    assert config["processes"] is True
    outcome = run_mpi(2, command("estimate", help=True))
    assert outcome.code == 0, outcome.err
    assert outcome.out.count("Exit code 2 if the run does not fit") == 1


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"rank": 3}, "strake: usage error: unknown flag --rank; did you mean '--ranks'?"),
        ({"gflops": 0}, "strake: usage error: --gflops 0 is no number in [1e-06, 1000000000]"),
        ({"max_seq_length": 65}, "strake: usage error: --max_seq_length 65 is more than the model's 64 positions"),
        ({"processes": "false"}, "strake: usage error: --processes false and ranks that were started as processes"),
    ],
)
def test_an_error_is_told_once(model, flags, told):
    outcome = run_mpi(2, command("estimate", **model, **flags))
    assert outcome.code == USAGE
    assert outcome.err.count(told) == outcome.err.count("strake: ") == 1, outcome.err
    assert outcome.out == ""


def test_a_run_that_does_not_fit_is_told_once(model):
    outcome = run_mpi(2, command("estimate", **model, memory_limit=0.001))
    assert outcome.code == USAGE
    assert outcome.err.count("(--memory_limit)") == outcome.err.count("strake: ") == 1, outcome.err
    assert outcome.out.count("\nall stages\n") == 1


def test_an_error_of_another_rank_is_told_with_its_number_and_code(model):
    lines = [command("estimate", **model), command("estimate", model_name_or_path="/nowhere/config.json")]
    for wrong in (0, 1):
        first, second = lines if wrong == 1 else reversed(lines)
        outcome = run_mpi(1, [*first, ":", "-n", "1", *second])
        assert outcome.code == FILE, outcome.err
        who = "rank 1: " if wrong == 1 else ""
        told = f"strake: file error: {who}cannot open /nowhere/config.json: "
        assert outcome.err.count(told) == outcome.err.count("strake: ") == 1, outcome.err
        assert outcome.out == ""


def run_torchrun(line, **variables):
    """As torchrun starts two processes; the second one says nothing, and ends as the first one does."""
    if is_open_mpi():
        pytest.skip("Open MPI has no protocol by which a process without its launcher can become a rank")
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())} | variables
    second = environment(RANK="1", **shared)
    other = subprocess.Popen(line, env=second, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    outcome = run(line, env=environment(RANK="0", **shared))
    text, _ = other.communicate(timeout=30)
    assert text == b""
    assert other.returncode == outcome.code
    return outcome


@pytest.mark.parametrize("flags", [{}, {"memory_limit": 0.001}])
def test_ranks_of_a_torchrun_environment_measure_too(model, flags):
    outcome = run_torchrun(command("estimate", **model, **flags))
    assert outcome.code == (USAGE if flags else 0), outcome.err
    assert has_communication(outcome.out, "measured: sums of gradients between the 2 processes")


def test_machines_that_are_there_are_measured(model):
    """Two processes that are told to be alone on their machines."""
    alone = {"LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    told = run_torchrun(command("estimate", **model), **alone).out
    assert number(told, "total of a machine") == number(told, "total of a rank")
    assert has_communication(told, "measured: sums of gradients between the 2 processes on 2 machines")
    assert HINT not in told
    told = run_torchrun(command("estimate", **model, ranks=4, ranks_per_machine=2), **alone).out
    assert has_communication(told, "measured: sums of gradients between the 2 processes on 2 machines")
