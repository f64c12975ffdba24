"""Masked language models trained by Transformers, measured as benchmarks/peers.py does: one row, once.

Run:  python benchmarks/masked_peers.py ROW WORKLOAD_DIR

Batches of nearly equal lengths, padded to the longest, masked as DataCollatorForLanguageModeling does; masking is
timed, as it is where strake does it.
"""

import peers

PROBABILITY, MASK, WORDS, FIRST_WORD = 0.15, 50264, 50265, 4  # of RoBERTa's vocabulary; ids below are special


def load_model():
    import torch
    import transformers

    torch.set_num_threads(peers.THREADS)
    torch.manual_seed(0)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers.RobertaForMaskedLM.from_pretrained(peers.FOLDER / "roberta-base").train()


def masked(inputs):
    """80 % of the chosen tokens become the mask, 10 % any other one; the loss is of these alone."""
    import torch

    ids = inputs["input_ids"]
    chosen = (torch.rand(ids.shape) < PROBABILITY) & (ids >= FIRST_WORD)
    labels = torch.where(chosen, ids, -100)
    fate = torch.rand(ids.shape)
    ids = torch.where(chosen & (fate < 0.8), MASK, ids)
    ids = torch.where(chosen & (fate >= 0.9), torch.randint(WORDS, ids.shape), ids)
    return {**inputs, "input_ids": ids, "labels": labels}


def train(products):
    sequences = peers.tokenize(peers.read_column("train.parquet"))
    step = peers.plain_step(load_model(), products)
    batches = peers.sorted_batches(sequences, peers.STEPS)

    def run(rows):
        return step(masked(peers.padded([sequences[row] for row in rows])))

    return peers.timed(run, batches, peers.WARM_UPS, sequences)


def masked_fp32():
    return train("fp32")


def masked_bf16():
    return train("bf16")


if __name__ == "__main__":
    peers.run_row([masked_fp32, masked_bf16], __doc__)
