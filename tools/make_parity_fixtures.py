"""Makes tests/fixtures/parity: small random checkpoints and what Transformers computes with them (CPU, fp32).

Run:  .venv/bin/python tools/make_parity_fixtures.py [OUT_DIR]      (after tools/setup.sh test)

Each folder holds config.json and model.safetensors as save_pretrained writes them, and two files of expectations.
Sequences are flat int32 arrays: sequence i of `input_ids` and `token_type_ids` is [offsets[i], offsets[i + 1]).

expected.safetensors, "bert", "bert_regression", "roberta", "distilbert", "bert_multi_label":
  input_ids, token_type_ids, offsets, labels   six sequences of 1 to 40 tokens (labels: int32, for regression float32,
                                               for several labels float32 [S, num_labels], 0 or 1)
  logits [S, num_labels], loss [1]             the mean loss over the six
  gradient.NAME                                of that loss, for every parameter
  train.input_ids, ...                         32 sequences of 1 to 24 tokens
  train.losses, train.gradient_norms (before clipping), train.learning_rates   one per step
  train.final_logits                           of the six sequences, with the weights after the last step
expected.json: the settings of the run, the parameters that weight decay applies to, and `steps`: per step the micro
  batches as lists of rows of the training sequences. The loss of a step is the sum over all its rows divided by their
  number, however they are cut into micro batches.
"gpt2", "gpt2_untied" have no labels, token types or logits, but
  nll [N], train.final_nll [N]                 of every token but the first of its sequence; `loss` is their mean
and the loss of a step is the sum over its targets divided by their number.
frozen.safetensors and frozen.json, "roberta" and "gpt2": losses, gradient_norms and final_logits or final_nll of the
first ten steps with the parameters frozen (requires_grad False) whose names match the patterns `freeze`.
smoothed.safetensors and smoothed.json, of the same: with the loss of Transformers' LabelSmoother; final_nll is not
smoothed.
"bert_base" is the encoder of "bert" saved without its head; its expectations are `pooled` [S, hidden] for the six.

Every sequence of an encoder is computed in a padded batch with an attention mask, and the script fails if one by one,
without any padding, gives something else; those of GPT-2 are computed one by one. Dropout is 0 in every config.json.
"""

import fnmatch
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from transformers.trainer_pt_utils import LabelSmoother, get_parameter_names

VOCABULARY = 120
FIRST_ID = 4  # ids below have a meaning in some family (padding, start, ...)
LENGTHS = [17, 1, 40, 6, 25, 2]
TRAINING_ROWS = 32
TRAINING_LONGEST = 24
MICRO_BATCH_ROWS = [2, 3, 1, 2]
RUN = {
    "optimizer": "adamw",
    "learning_rate": 1e-3,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
    "weight_decay": 0.01,
    "max_grad_norm": 1.0,
    "lr_scheduler_type": "linear",
    "warmup_steps": 2,
    "max_steps": 20,
}
NO_DECAY = [r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)"]  # as in the Trainer


def bert_config(**changes):
    return transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.2,
        **changes,
    )


def roberta_config():
    return transformers.RobertaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=66,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.2,
        num_labels=3,
    )


def distilbert_config():
    return transformers.DistilBertConfig(
        vocab_size=VOCABULARY,
        dim=32,
        n_layers=2,
        n_heads=4,
        hidden_dim=64,
        max_position_embeddings=64,
        dropout=0.0,
        attention_dropout=0.0,
        seq_classif_dropout=0.0,
        initializer_range=0.2,
        num_labels=3,
    )


def gpt2_config(**changes):
    return transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=64,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        resid_pdrop=0.0,
        initializer_range=0.2,
        bos_token_id=0,
        eos_token_id=0,
        **changes,
    )


LANGUAGE_MODELS = {
    "gpt2": gpt2_config(),
    "gpt2_untied": gpt2_config(
        tie_word_embeddings=False, n_inner=48, activation_function="relu", scale_attn_weights=False
    ),
}
FIXTURES = {
    "bert": (transformers.BertForSequenceClassification, bert_config(num_labels=3)),
    "bert_regression": (
        transformers.BertForSequenceClassification,
        bert_config(num_labels=1, problem_type="regression"),
    ),
    "roberta": (transformers.RobertaForSequenceClassification, roberta_config()),
    "distilbert": (transformers.DistilBertForSequenceClassification, distilbert_config()),
}
# Made after the language models, whose seeds follow those above.
MULTI_LABEL = {
    "bert_multi_label": (
        transformers.BertForSequenceClassification,
        bert_config(num_labels=5, problem_type="multi_label_classification"),
    ),
}

FEW_STEPS = 10
SMOOTHED = {"roberta": 0.1, "gpt2": 0.3}
FROZEN = {
    # Frozen below, mixed, and trained above; trained below frozen ones and used twice.
    "roberta": ["roberta.embeddings.*", "*.layer.0.*", "*.layer.1.*.weight"],
    "gpt2": ["*.h.1.*", "transformer.ln_f.*", "transformer.wpe.weight"],
}


class Sequences:
    """Random token ids of the given lengths, token types that switch from 0 to 1 as in a pair, and labels."""

    def __init__(self, lengths, config, generator):
        self.types = getattr(config, "type_vocab_size", 0)
        self.padding = config.pad_token_id
        self.ids = [torch.randint(FIRST_ID, VOCABULARY, (n,), generator=generator) for n in lengths]
        cuts = [int(torch.randint(0, n + 1, (), generator=generator)) for n in lengths]
        self.token_types = [
            (torch.arange(n) >= cut).long() * (self.types > 1) for n, cut in zip(lengths, cuts, strict=True)
        ]
        if config.problem_type == "multi_label_classification":
            self.labels = torch.randint(0, 2, (len(lengths), config.num_labels), generator=generator).float()
        elif config.num_labels == 1:
            self.labels = torch.randn(len(lengths), generator=generator)
        else:
            self.labels = torch.randint(0, config.num_labels, (len(lengths),), generator=generator)

    def padded(self, rows):
        """Model inputs: rows as a rectangle, with what is no token masked."""
        ids = [self.ids[row] for row in rows]
        pad = torch.nn.utils.rnn.pad_sequence
        inputs = {
            "input_ids": pad(ids, batch_first=True, padding_value=self.padding),
            "attention_mask": pad([torch.ones_like(row) for row in ids], batch_first=True),
        }
        if self.types > 1:
            inputs["token_type_ids"] = pad([self.token_types[row] for row in rows], batch_first=True)
        return inputs

    def tensors(self, prefix=""):
        lengths = torch.tensor([0] + [len(row) for row in self.ids])
        labels = self.labels if self.labels.is_floating_point() else self.labels.int()
        return {
            prefix + "input_ids": torch.cat(self.ids).int(),
            prefix + "token_type_ids": torch.cat(self.token_types).int(),
            prefix + "offsets": lengths.cumsum(0).int(),
            prefix + "labels": labels,
        }


def randomize(model, generator):
    """Transformers starts biases at 0 and norms at 1, which would hide a bias or a norm that is left out."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))


def loss_sum(logits, labels):
    if labels.dim() == 2:
        return binary_cross_entropy_with_logits(logits, labels, reduction="none").mean(1).sum()
    if labels.is_floating_point():
        return ((logits.squeeze(-1) - labels) ** 2).sum()
    return cross_entropy(logits, labels, reduction="sum")


def evaluate(model, sequences):
    """Logits, mean loss and its gradient by parameter name."""
    rows = range(len(sequences.ids))
    logits = model(**sequences.padded(rows)).logits
    alone = torch.cat([model(**sequences.padded([row])).logits for row in rows])
    torch.testing.assert_close(logits, alone, rtol=1e-5, atol=1e-5)
    loss = loss_sum(logits, sequences.labels) / len(rows)
    torch.testing.assert_close(loss, model(**sequences.padded(rows), labels=sequences.labels).loss)
    model.zero_grad()
    loss.backward()
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    return logits.detach(), loss.detach(), gradients


def micro_batches(generator, num_steps, sizes=MICRO_BATCH_ROWS):
    """For each step, rows cut into micro batches; an epoch visits every row once, in a new order."""
    per_step = sum(sizes)
    epochs = -(-num_steps * per_step // TRAINING_ROWS)
    rows = torch.cat([torch.randperm(TRAINING_ROWS, generator=generator) for _ in range(epochs)]).tolist()
    steps = []
    for step in range(num_steps):
        taken = iter(rows[step * per_step : (step + 1) * per_step])
        steps.append([[next(taken) for _ in range(size)] for size in sizes])
    return steps


def decayed_names(model):
    return sorted(get_parameter_names(model, [torch.nn.LayerNorm], NO_DECAY))


def optimizer_of(model):
    decayed = set(decayed_names(model))
    groups = [
        {"params": [p for n, p in model.named_parameters() if n in decayed], "weight_decay": RUN["weight_decay"]},
        {"params": [p for n, p in model.named_parameters() if n not in decayed], "weight_decay": 0.0},
    ]
    betas = (RUN["adam_beta1"], RUN["adam_beta2"])
    return torch.optim.AdamW(groups, lr=RUN["learning_rate"], betas=betas, eps=RUN["adam_epsilon"])


def train(model, steps, loss_sum_of, num_targets):
    """Per step: loss, gradient norm before clipping, learning rate. Losses are given as functions of rows."""
    optimizer = optimizer_of(model)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, RUN["warmup_steps"], RUN["max_steps"])
    history = []
    for batches in steps:
        optimizer.zero_grad()
        loss = 0.0
        divisor = sum(map(num_targets, batches))
        for rows in batches:
            part = loss_sum_of(rows) / divisor
            part.backward()
            loss += part.item()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), RUN["max_grad_norm"]).item()
        history.append((loss, norm, schedule.get_last_lr()[0]))
        optimizer.step()
        schedule.step()
    return torch.tensor(history, dtype=torch.float64).T


def write(folder, tensors, facts):
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(tensors, folder / "expected.safetensors")
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in {**facts, "made_with": versions}.items()]
    (folder / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def make(folder, model_class, config, seed):
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    config._attn_implementation = "eager"
    model = model_class(config).eval()
    randomize(model, generator)
    model.save_pretrained(folder)

    sequences = Sequences(LENGTHS, config, generator)
    lengths = torch.randint(1, TRAINING_LONGEST + 1, (TRAINING_ROWS,), generator=generator).tolist()
    training = Sequences(lengths, config, generator)
    steps = micro_batches(generator, RUN["max_steps"])
    logits, loss, gradients = evaluate(model, sequences)
    losses, norms, rates = train(
        model, steps, lambda rows: loss_sum(model(**training.padded(rows)).logits, training.labels[rows]), len
    )
    with torch.no_grad():
        final = model(**sequences.padded(range(len(LENGTHS)))).logits
    tensors = sequences.tensors() | training.tensors("train.")
    tensors |= {"gradient." + name: gradient for name, gradient in gradients.items()}
    tensors |= {"logits": logits, "loss": loss.reshape(1), "train.losses": losses.float()}
    tensors |= {"train.gradient_norms": norms.float(), "train.learning_rates": rates, "train.final_logits": final}
    write(folder, tensors, {**RUN, "decayed": decayed_names(model), "steps": steps})
    spread = f"logits {logits.abs().max():.2f}, norms {norms.min():.2f} to {norms.max():.2f}"
    print(f"{folder.name}: {spread}, loss {losses[0]:.4f} -> {losses[-1]:.4f}")


def token_nll(model, ids):
    """Of every token but the first, each given those before it; nothing for a single one."""
    logits = model(ids[None]).logits[0]
    return cross_entropy(logits[:-1], ids[1:], reduction="none")


def ids_and_offsets(documents, prefix=""):
    lengths = torch.tensor([0] + [len(ids) for ids in documents])
    return {prefix + "input_ids": torch.cat(documents).int(), prefix + "offsets": lengths.cumsum(0).int()}


def make_language_model(folder, config, seed):
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    config._attn_implementation = "eager"
    model = transformers.GPT2LMHeadModel(config).eval()
    randomize(model, generator)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink()

    def random_documents(lengths):
        return [torch.randint(FIRST_ID, VOCABULARY, (n,), generator=generator) for n in lengths]

    documents = random_documents(LENGTHS)
    training = random_documents(torch.randint(1, TRAINING_LONGEST + 1, (TRAINING_ROWS,), generator=generator).tolist())
    steps = micro_batches(generator, RUN["max_steps"])
    nll = torch.cat([token_nll(model, ids) for ids in documents])
    longest = max(documents, key=len)
    torch.testing.assert_close(token_nll(model, longest).mean(), model(longest[None], labels=longest[None]).loss)
    loss = nll.mean()
    loss.backward()
    tensors = ids_and_offsets(documents) | ids_and_offsets(training, "train.")
    tensors |= {"gradient." + name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    losses, norms, rates = train(
        model,
        steps,
        lambda rows: sum(token_nll(model, training[row]).sum() for row in rows),
        lambda rows: sum(len(training[row]) - 1 for row in rows),
    )
    with torch.no_grad():
        final = torch.cat([token_nll(model, ids) for ids in documents])
    tensors |= {"nll": nll.detach(), "loss": loss.detach().reshape(1), "train.losses": losses.float()}
    tensors |= {"train.gradient_norms": norms.float(), "train.learning_rates": rates, "train.final_nll": final}
    write(folder, tensors, {**RUN, "decayed": decayed_names(model), "steps": steps})
    print(f"{folder.name}: norms {norms.min():.2f} to {norms.max():.2f}, loss {losses[0]:.4f} -> {losses[-1]:.4f}")


def rows_of(tensors, name):
    """Flat training sequences, cut apart."""
    offsets = tensors["train.offsets"].tolist()
    return [tensors["train." + name][begin:end].long() for begin, end in zip(offsets, offsets[1:], strict=False)]


def train_again(folder, frozen=(), smoother=None):
    """Trains the checkpoint that is in `folder` as its expectations say, with frozen parameters or smoothed labels: the
    history of its first steps, and the outputs for the six sequences then, by their name."""
    expected = load_file(folder / "expected.safetensors")
    steps = json.loads((folder / "expected.json").read_text())["steps"][:FEW_STEPS]
    is_language_model = "nll" in expected
    model_class = transformers.GPT2LMHeadModel if is_language_model else FIXTURES[folder.name][0]
    model = model_class.from_pretrained(folder, attn_implementation="eager").eval()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not any(fnmatch.fnmatchcase(name, pattern) for pattern in frozen))
    rows = rows_of(expected, "input_ids")
    labels = None if is_language_model else expected["train.labels"].long()

    def loss_of(row):
        if smoother is not None:
            targets = rows[row][None] if is_language_model else labels[row : row + 1]
            output = {"logits": model(rows[row][None]).logits}
            return smoother(output, targets, shift_labels=is_language_model, num_items_in_batch=1)  # a sum
        if is_language_model:
            return token_nll(model, rows[row]).sum()
        return loss_sum(model(rows[row][None]).logits, labels[row : row + 1])

    def num_targets(batch):
        return sum(len(rows[row]) - 1 for row in batch) if is_language_model else len(batch)

    history = train(model, steps, lambda batch: sum(loss_of(row) for row in batch), num_targets)
    offsets = expected["offsets"].tolist()
    six = [expected["input_ids"][begin:end].long() for begin, end in zip(offsets, offsets[1:], strict=False)]
    with torch.no_grad():
        final = torch.cat([token_nll(model, ids) if is_language_model else model(ids[None]).logits for ids in six])
    return history, {"final_nll" if is_language_model else "final_logits": final}


def write_again(folder, name, trained, facts):
    (losses, norms, _), outputs = trained
    tensors = {"losses": losses.float(), "gradient_norms": norms.float()} | outputs
    save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, folder / f"{name}.safetensors")
    (folder / f"{name}.json").write_text(json.dumps(facts) + "\n")
    print(
        f"{folder.name}, {name}: norms {norms.min():.2f} to {norms.max():.2f}, loss {losses[0]:.4f} -> {losses[-1]:.4f}"
    )


def make_base(folder, source):
    """The encoder of the checkpoint `source`, as a checkpoint without a head."""
    model = transformers.BertModel.from_pretrained(source, attn_implementation="eager").eval()
    model.save_pretrained(folder)
    config = transformers.AutoConfig.from_pretrained(source)
    sequences = Sequences(LENGTHS, config, torch.Generator().manual_seed(99))
    with torch.no_grad():
        pooled = model(**sequences.padded(range(len(LENGTHS)))).pooler_output
    write(folder, sequences.tensors() | {"pooled": pooled}, {"encoder_of": source.name})


def main():
    root = pathlib.Path(__file__).resolve().parents[1]
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else root / "tests/fixtures/parity"
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for seed, (name, (model_class, config)) in enumerate(FIXTURES.items()):
        (out / name).mkdir(parents=True, exist_ok=True)
        make(out / name, model_class, config, seed)
    (out / "bert_base").mkdir(parents=True, exist_ok=True)
    make_base(out / "bert_base", out / "bert")
    for seed, (name, config) in enumerate(LANGUAGE_MODELS.items(), start=len(FIXTURES)):
        (out / name).mkdir(parents=True, exist_ok=True)
        make_language_model(out / name, config, seed)
    for seed, (name, (model_class, config)) in enumerate(
        MULTI_LABEL.items(), start=len(FIXTURES) + len(LANGUAGE_MODELS)
    ):
        (out / name).mkdir(parents=True, exist_ok=True)
        make(out / name, model_class, config, seed)
    for name, patterns in FROZEN.items():
        write_again(out / name, "frozen", train_again(out / name, frozen=patterns), {"freeze": patterns})
    for name, epsilon in SMOOTHED.items():
        smoothed = train_again(out / name, smoother=LabelSmoother(epsilon))
        write_again(out / name, "smoothed", smoothed, {"label_smoothing_factor": epsilon})


if __name__ == "__main__":
    main()
