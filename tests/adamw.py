"""Training by PyTorch, for tests that compare strake's with it."""

import torch


def losses_of_steps(model, steps, sums_of_losses):
    """Of AdamW with clipping; `sums_of_losses(step)` gives the sum of losses and the targets of each sequence."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0)
    losses = []
    for step in range(1, steps + 1):
        sums, counts = zip(*sums_of_losses(step), strict=True)
        loss = sum(sums) / sum(counts)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses
