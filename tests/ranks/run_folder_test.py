"""What a run does with the checkpoints that it finds: its own, those of another run, and damaged ones."""

import json
import os
import pathlib
import shlex
import shutil
import subprocess

import pytest
from program import command, environment, files_in, full_disk, metrics, run, wait_until
from resumable_run import train_command
from safetensors.numpy import load_file
from tiny_models import reviews, training_inputs, write_table

FLAGS = {"max_steps": 12, "metric_for_best_model": "loss", "greater_is_better": "true"}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return training_inputs(tmp_path_factory.mktemp("inputs"), wide=False)


@pytest.fixture
def finished(inputs, tmp_path):
    """A finished run with checkpoints 4, 8 and 12, whose best model is the first."""
    outcome = run(train_command(inputs, tmp_path / "run", **FLAGS))
    assert outcome.code == 0 and "at step 4\n" in outcome.err
    return tmp_path / "run"


def refusal(inputs, folder, code=2, **flags):
    """What the run says that leaves the folder as it was."""
    before = files_in(folder)
    outcome = run(train_command(inputs, folder, **(FLAGS | flags)))
    assert outcome.code == code, outcome.err
    assert files_in(folder) == before
    return outcome.err


def checkpoints(folder):
    return sorted(path.name for path in folder.glob("checkpoint-*"))


def change(path, **values):
    """Writes other values into a checkpoint's file, and its new sums into the manifest: as an attacker would."""
    document = json.loads(path.read_text())
    (document.get("state") or document).update(values)
    path.write_text(json.dumps(document))
    manifest = json.loads((path.parent / "manifest.json").read_text())
    manifest["files"][path.name] = sums(path)
    (path.parent / "manifest.json").write_text(json.dumps(manifest))


def sums(path):
    crc = 0xFFFFFFFF
    for byte in path.read_bytes():
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return {"bytes": path.stat().st_size, "crc32c": crc ^ 0xFFFFFFFF}


def test_a_run_that_goes_on_elsewhere_finds_its_best_model(inputs, finished, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    for start in (finished / "checkpoint-8", elsewhere / "checkpoint-12"):
        outcome = run(train_command(inputs, elsewhere, resume_from_checkpoint=start, **FLAGS))
        assert outcome.code == 0, outcome.err
        assert (elsewhere / "model.safetensors").read_bytes() == (finished / "model.safetensors").read_bytes()
        assert checkpoints(elsewhere) == ["checkpoint-12"]


def ends_with_its_last_weights(inputs, folder):
    line = train_command(inputs, folder, **(FLAGS | {"resume_from_checkpoint": folder / "checkpoint-8"}))
    outcome = run(line)
    assert outcome.code == 0, outcome.err
    assert "at step 4, is not there any more: " + str(folder / "checkpoint-4") in outcome.err
    assert "cannot be loaded, for its checkpoint" in outcome.err and "the last ones" in outcome.err
    last = load_file(folder / "checkpoint-12" / "model.safetensors")
    final = load_file(folder / "model.safetensors")
    assert all((final[name] == last[name]).all() for name in last)


def test_a_run_whose_best_model_is_gone_ends_with_its_last_weights(inputs, finished):
    shutil.rmtree(finished / "checkpoint-4")
    ends_with_its_last_weights(inputs, finished)


def test_the_best_model_of_another_run_is_not_taken(inputs, finished, tmp_path):
    other = tmp_path / "other"
    assert run(train_command(inputs, other, **(FLAGS | {"learning_rate": 1e-4}))).code == 0
    shutil.rmtree(finished / "checkpoint-4")
    shutil.copytree(other / "checkpoint-4", finished / "checkpoint-4")
    ends_with_its_last_weights(inputs, finished)


def damage(weights):
    damaged = bytearray(weights.read_bytes())
    damaged[-1] ^= 1
    weights.write_bytes(damaged)


def test_a_damaged_best_model_is_not_loaded_at_the_end(inputs, finished):
    weights = finished / "checkpoint-4" / "model.safetensors"
    damage(weights)
    before = (finished / "model.safetensors").read_bytes()
    outcome = run(train_command(inputs, finished, resume_from_checkpoint="true", **FLAGS))
    assert outcome.code == 4 and str(weights) in outcome.err
    assert (finished / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_damaged_best_model_does_not_stop_a_run_that_never_loads_it(inputs, tmp_path, ranks):
    flags = FLAGS | {"load_best_model_at_end": None, "metric_for_best_model": "loss"}
    folder = tmp_path / "run"
    assert run(train_command(inputs, folder, **flags)).code == 0
    expected = (folder / "model.safetensors").read_bytes()
    shutil.rmtree(folder / "checkpoint-12")
    weights = folder / "checkpoint-4" / "model.safetensors"
    damage(weights)
    outcome = run(train_command(inputs, folder, ranks, resume_from_checkpoint="true", **flags))
    assert outcome.code == 0, outcome.err
    told = [line for line in outcome.err.splitlines() if str(weights) in line]
    assert len(told) == 1 and "the best checkpoint so far, eval_loss = " in told[0] and " at step 4" in told[0]
    assert "checkpoint-4" in checkpoints(folder)
    assert (folder / "model.safetensors").read_bytes() == expected


def test_another_metric_looks_for_the_best_model_anew(inputs, finished):
    flags = FLAGS | {"metric_for_best_model": "accuracy", "max_steps": 16, "save_total_limit": None}
    outcome = run(train_command(inputs, finished, resume_from_checkpoint="true", **flags))
    assert outcome.code == 0, outcome.err
    assert "eval_loss was " in outcome.err and "looked for anew" in outcome.err
    state = json.loads((finished / "trainer_state.json").read_text())
    assert state["best_global_step"] == 16
    assert (
        state["best_metric"] == [entry for entry in metrics(finished) if "eval_accuracy" in entry][-1]["eval_accuracy"]
    )


def test_another_loss_looks_for_the_best_model_anew(inputs, finished):
    flags = FLAGS | {"label_smoothing_factor": 0.3, "max_steps": 16}
    outcome = run(train_command(inputs, finished, resume_from_checkpoint="true", **flags))
    assert outcome.code == 0, outcome.err
    assert "way to evaluate: eval_loss was " in outcome.err and "looked for anew" in outcome.err
    assert json.loads((finished / "trainer_state.json").read_text())["best_global_step"] == 16


def test_other_validation_data_looks_for_the_best_model_anew(inputs, finished, tmp_path):
    other = inputs | {"validation_file": write_table(tmp_path / "other.parquet", reviews(11, seed=5))}
    outcome = run(train_command(other, finished, resume_from_checkpoint="true", **(FLAGS | {"max_steps": 16})))
    assert outcome.code == 0, outcome.err
    assert "validation data or way to evaluate: eval_loss was " in outcome.err and "looked for anew" in outcome.err
    assert json.loads((finished / "trainer_state.json").read_text())["best_global_step"] == 16


def test_a_trailing_slash_does_not_hide_that_a_checkpoint_was_renamed(inputs, finished):
    (finished / "checkpoint-12").rename(finished / "checkpoint-9")
    for slash in ("", "/"):
        said = refusal(inputs, finished, code=4, resume_from_checkpoint=f"{finished}/checkpoint-9{slash}")
        assert "it is of step 12, the folder's name says 9" in said


def test_a_checkpoint_that_is_a_circle_of_links_is_left_aside(inputs, finished):
    (finished / "checkpoint-99").symlink_to("checkpoint-99")
    outcome = run(train_command(inputs, finished, resume_from_checkpoint="true", **FLAGS))
    assert outcome.code == 0, outcome.err


def test_a_tokenizer_file_that_a_checkpoint_does_not_list_is_not_read(inputs, finished):
    (finished / "checkpoint-12" / "tokenizer.json").write_text("{}")
    said = refusal(inputs, finished, code=4, resume_from_checkpoint=finished / "checkpoint-12")
    assert "tokenizer.json does not belong to this checkpoint" in said
    outcome = run(command("evaluate", model_name_or_path=finished / "checkpoint-12", input=inputs["train_file"]))
    assert outcome.code == 4 and "tokenizer.json does not belong" in outcome.err


def test_a_model_takes_the_place_of_another_with_all_its_files(inputs, tmp_path):
    """Files of another tokenizer, or weights in several files, would be read instead of the model's own, or with it."""
    flags = FLAGS | {"save_strategy": "no", "load_best_model_at_end": None, "max_steps": 2}
    alone = tmp_path / "alone"
    assert run(train_command(inputs, alone, **flags)).code == 0
    folder = tmp_path / "out"
    folder.mkdir()
    stale = ["tokenizer.json", "added_tokens.json", "merges.txt", "model-00001-of-00002.safetensors"]
    for name in [*stale, "model.safetensors.index.json", "strake_precision.json", "config.json", "notes.txt"]:
        (folder / name).write_text("{}")
    assert run(train_command(inputs, folder, **flags)).code == 0
    assert {path.name for path in folder.iterdir()} == {path.name for path in alone.iterdir()} | {"notes.txt"}
    assert (folder / "config.json").read_bytes() == (alone / "config.json").read_bytes()


def test_a_model_that_is_half_there_is_none(inputs, tmp_path):
    """The weights are new, the rest could not be written: without a config.json nothing takes that for a model."""
    flags = FLAGS | {"save_strategy": "no", "load_best_model_at_end": None, "max_steps": 2}
    folder = tmp_path / "out"
    assert run(train_command(inputs, folder, **flags)).code == 0
    config = (folder / "config.json").read_bytes()
    (folder / "vocab.txt").unlink()
    (folder / "vocab.txt" / "in the way").mkdir(parents=True)
    before = (folder / "model.safetensors").read_bytes()
    outcome = run(train_command(inputs, folder, **(flags | {"learning_rate": 1e-2})))
    assert outcome.code == 4 and "vocab.txt" in outcome.err
    assert (folder / "model.safetensors").read_bytes() != before
    assert not (folder / "config.json").exists()
    assert (folder / ".config.json.old").read_bytes() == config, "nothing is lost"
    outcome = run(command("evaluate", model_name_or_path=folder, input=inputs["train_file"]))
    assert outcome.code in (2, 4) and "config.json" in outcome.err


def test_a_model_that_cannot_be_replaced_stays(inputs, tmp_path):
    flags = FLAGS | {"save_strategy": "no", "load_best_model_at_end": None, "max_steps": 2}
    folder = tmp_path / "out"
    assert run(train_command(inputs, folder, **flags)).code == 0
    before = {name: (folder / name).read_bytes() for name in ("config.json", "model.safetensors", "vocab.txt")}
    line = train_command(inputs, folder, **(flags | {"learning_rate": 1e-2}))
    outcome = run(line, **full_disk(len(before["model.safetensors"]) - 8192))
    assert outcome.code == 4 and "model.safetensors" in outcome.err, outcome.err
    assert {name: (folder / name).read_bytes() for name in before} == before
    assert run(command("evaluate", model_name_or_path=folder, input=inputs["train_file"])).code == 0


def test_checkpoints_of_a_course_that_is_left_are_replaced(inputs, finished):
    flags = FLAGS | {"save_total_limit": 2, "learning_rate": 2e-3, "max_steps": 10}
    outcome = run(train_command(inputs, finished, resume_from_checkpoint=finished / "checkpoint-4", **flags))
    assert outcome.code == 0, outcome.err
    assert "checkpoint-8, checkpoint-12 are of later steps than 4" in outcome.err
    assert checkpoints(finished) == ["checkpoint-10", "checkpoint-8"]
    assert json.loads((finished / "checkpoint-8" / "trainer_state.json").read_text())["max_steps"] == 10


def test_of_a_course_that_is_left_none_stays_between_those_of_the_next(inputs, finished):
    flags = FLAGS | {"save_total_limit": None, "save_steps": 12, "max_steps": 12, "learning_rate": 2e-3}
    outcome = run(train_command(inputs, finished, resume_from_checkpoint=finished / "checkpoint-4", **flags))
    assert outcome.code == 0, outcome.err
    assert checkpoints(finished) == ["checkpoint-12", "checkpoint-4"]


def test_starting_over_does_not_delete_the_model_that_it_starts_from(inputs, finished, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(finished / "checkpoint-8")
    for model in (finished / "checkpoint-8", link):
        said = refusal(inputs | {"model_name_or_path": model}, finished, overwrite_output_dir=True)
        assert "--overwrite_output_dir deletes the checkpoints" in said and f"--model_name_or_path {model}" in said


@pytest.mark.parametrize("flag", ["train_file", "validation_file", "tokenizer_name"])
def test_inputs_are_not_deleted_with_checkpoints(inputs, finished, flag):
    given = pathlib.Path(inputs[flag] if flag in inputs else inputs["model_name_or_path"] / "vocab.txt")
    kept = pathlib.Path(shutil.copy(given, finished / "checkpoint-8"))
    said = refusal(inputs | {flag: kept}, finished, overwrite_output_dir=True)
    assert "--overwrite_output_dir deletes the checkpoints" in said and f"--{flag} {kept}" in said
    said = refusal(inputs | {flag: kept}, finished, resume_from_checkpoint=finished / "checkpoint-4")
    assert "checkpoint-4 deletes the later checkpoints" in said and f"--{flag} {kept}" in said


def test_the_best_checkpoint_stays_when_a_run_goes_on_without_asking_for_it(inputs, finished):
    flags = FLAGS | {"load_best_model_at_end": None, "metric_for_best_model": None}
    flags |= {"max_steps": 16, "save_total_limit": 1}
    outcome = run(train_command(inputs, finished, resume_from_checkpoint="true", **flags))
    assert outcome.code == 0, outcome.err
    assert checkpoints(finished) == ["checkpoint-16", "checkpoint-4"]
    state = json.loads((finished / "trainer_state.json").read_text())
    assert state["best_model_checkpoint"] == str(finished / "checkpoint-4")


def test_a_folder_that_cannot_be_listed_is_not_taken_for_an_empty_one(inputs, finished):
    if os.getuid() == 0:
        pytest.skip("root may list all folders")
    finished.chmod(0o300)
    outcome = run(train_command(inputs, finished, resume_from_checkpoint="true", **FLAGS))
    finished.chmod(0o700)
    assert outcome.code == 4 and "cannot read and write in" in outcome.err and "Permission denied" in outcome.err


def test_a_word_that_is_no_folder_to_go_on_from_is_told_so(inputs, finished):
    said = refusal(inputs, finished, code=4, resume_from_checkpoint="None")
    assert "--resume_from_checkpoint None does not exist: it is true, false, or a folder" in said


def test_a_folder_with_checkpoints_of_another_run_is_not_gone_on_into(inputs, finished, tmp_path):
    other = shutil.copytree(finished, tmp_path / "other")
    said = refusal(inputs, other, resume_from_checkpoint=finished / "checkpoint-4")
    assert f"--output_dir {other} has checkpoints of another run" in said


def test_a_linked_checkpoint_of_the_run_is_gone_on_from(inputs, finished, tmp_path):
    shutil.rmtree(finished / "checkpoint-12")
    (finished / "checkpoint-8").rename(tmp_path / "kept")
    (finished / "checkpoint-8").symlink_to(tmp_path / "kept")
    for wish in ("true", f"{finished}/checkpoint-8/"):
        outcome = run(train_command(inputs, finished, resume_from_checkpoint=wish, **FLAGS))
        assert outcome.code == 0, outcome.err
    assert (tmp_path / "kept" / "manifest.json").exists()


def test_checkpoints_of_others_are_not_written_over_unasked(inputs, tmp_path):
    (tmp_path / "checkpoint-4").mkdir()
    (tmp_path / "checkpoint-4" / "model.safetensors").write_bytes(b"of Transformers, say")
    assert "has checkpoints of an earlier run" in refusal(inputs, tmp_path)
    assert "none of the checkpoints" in refusal(inputs, tmp_path, code=4, resume_from_checkpoint="true")


def test_a_file_in_the_place_of_a_checkpoint_is_not_replaced(inputs, finished, tmp_path):
    for folder, flags in (
        (tmp_path / "new", {}),
        (tmp_path / "new", {"overwrite_output_dir": True}),
        (tmp_path / "new", {"dry_run": True}),
        (finished, {"resume_from_checkpoint": "true"}),
    ):
        folder.mkdir(exist_ok=True)
        (folder / "checkpoint-20").write_text("notes")
        message = refusal(inputs, folder, **flags)
        assert "checkpoint-20 is no folder, and the checkpoint of that step would replace it: move it away" in message


def test_a_checkpoint_without_its_manifest_is_named_when_it_is_passed_over(inputs, finished):
    (finished / "checkpoint-12/manifest.json").unlink()
    outcome = run(train_command(inputs, finished, **FLAGS, resume_from_checkpoint="true"))
    assert outcome.code == 0, outcome.err
    assert "checkpoint-12 has no manifest.json" in outcome.err
    assert "going on from" in outcome.err and "checkpoint-8, behind step 8" in outcome.err


def run_on_small_disk(line, folder, size):
    """In a file system of its own, which is mounted where only the run sees it."""
    inside = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    mount = f"mount -t tmpfs -o size={size} tmpfs {folder}"
    if subprocess.run([*inside, mount], capture_output=True).returncode != 0:
        pytest.skip("no file system may be mounted here")
    return run([*inside, f"{mount} && exec {shlex.join(line)}"])


def test_a_disk_without_room_for_a_checkpoint_is_found_before_the_first_step(inputs, tmp_path):
    outcome = run_on_small_disk(train_command(inputs, tmp_path / "run"), tmp_path, "100k")
    assert outcome.code == 4, outcome.err
    assert "a checkpoint and the model at the end take" in outcome.err and "free" in outcome.err


def test_scratch_files_and_checkpoints_must_fit_on_a_disk_together(inputs, tmp_path):
    flags = {"max_steps": 1, "save_steps": 1, "eval_steps": 1}
    plain = run_on_small_disk(train_command(inputs, tmp_path / "run", **flags), tmp_path, "500k")
    assert plain.code == 0, plain.err
    offload = {"device": "nvme", "nvme_path": str(tmp_path)}
    config = json.dumps({"zero_optimization": {"stage": 3, "offload_optimizer": offload}})
    outcome = run_on_small_disk(train_command(inputs, tmp_path / "run", **flags, deepspeed=config), tmp_path, "500k")
    assert outcome.code == 4, outcome.err
    assert "with the scratch files of nvme_path, which is on the same disk" in outcome.err


def test_a_run_whose_checkpoints_are_all_damaged_is_not_started_over(inputs, finished):
    for folder in finished.glob("checkpoint-*"):
        with (folder / "model.safetensors").open("ab") as file:
            file.write(b"X")
    for wish in ("true", finished):
        said = refusal(inputs, finished, code=4, resume_from_checkpoint=wish)
        assert "checkpoint-8 is not used" in said and "is sound" in said


def test_two_runs_do_not_write_into_one_folder(inputs, tmp_path):
    line = train_command(inputs, tmp_path, max_steps=100000)
    with subprocess.Popen(line, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
        try:
            wait_until(lambda: (tmp_path / "checkpoint-4").exists())
            for flags in ({"resume_from_checkpoint": "true"}, {"overwrite_output_dir": True}):
                outcome = run(train_command(inputs, tmp_path, **flags))
                assert outcome.code == 2 and "another run is writing into it" in outcome.err
            assert first.poll() is None
        finally:
            first.kill()
    assert run(train_command(inputs, tmp_path, resume_from_checkpoint="true", max_steps=4)).code == 0


def test_another_model_configuration_is_refused(inputs, finished, tmp_path):
    model = shutil.copytree(inputs["model_name_or_path"], tmp_path / "model")
    change_config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(change_config | {"hidden_act": "relu"}))
    said = refusal(inputs, finished, resume_from_checkpoint="true", model_name_or_path=model)
    assert 'model_config.hidden_act = "gelu", now it is "relu"' in said


@pytest.mark.parametrize(
    ("file", "values", "named"),
    [
        ("strake_state.json", {"step": 2**63 - 1}, "strake_state.json: step 9223372036854775807"),
        ("strake_state.json", {"step": 9}, "trainer_state.json is of step 8, strake_state.json of step 9"),
        ("trainer_state.json", {"global_step": 99}, "trainer_state.json is of step 99"),
        ("strake_state.json", {"epoch": 2**62}, "strake_state.json: step 8 at epoch 4611686018427387904"),
        ("strake_state.json", {"position": 97}, "strake_state.json: sequence 97 of an epoch"),
        ("strake_state.json", {"skipped_steps": 4}, "strake_state.json: 4 steps skipped without fp16"),
        ("strake_state.json", {"steps_since_log": -1}, "strake_state.json: steps_since_log -1"),
    ],
)
def test_a_state_that_contradicts_itself_is_refused(inputs, finished, file, values, named):
    change(finished / "checkpoint-8" / file, **values)
    assert named in refusal(inputs, finished, resume_from_checkpoint=finished / "checkpoint-8")


def test_a_finished_run_does_without_its_damaged_history(inputs, finished):
    (finished / "trainer_state.json").write_text("{")
    outcome = run(train_command(inputs, finished, resume_from_checkpoint="true", **FLAGS))
    assert outcome.code == 0, outcome.err
    assert json.loads((finished / "trainer_state.json").read_text())["global_step"] == 12


def test_what_settings_came_to_is_that_of_the_last_run(inputs, tmp_path):
    record = tmp_path / "run" / "ds_config_resolved.json"
    flags = {"max_steps": 1, "save_strategy": "no", "load_best_model_at_end": "false"}
    for sharding, is_there in (
        ({"deepspeed": '{"zero_optimization": {"stage": 3}}'}, True),
        ({"fsdp": "no_shard"}, False),
    ):
        outcome = run(train_command(inputs, tmp_path / "run", **flags, **sharding))
        assert outcome.code == 0, outcome.err
        assert record.exists() == is_there


def test_other_kernels_than_those_of_the_checkpoint_are_told(inputs, tmp_path):
    flags = {"max_steps": 4, "load_best_model_at_end": "false"}
    assert run(train_command(inputs, tmp_path / "run", **flags), env=environment(STRAKE_ISA="avx2")).code == 0
    resumed = flags | {"max_steps": 8, "resume_from_checkpoint": "true"}
    outcome = run(train_command(inputs, tmp_path / "run", **resumed), env=environment(STRAKE_ISA="reference"))
    assert outcome.code == 0, outcome.err
    told = 'what computes, and so how sums are rounded, was "avx2 and matrix products of'
    assert told in outcome.err
