"""The exercises of the chapter The memory of training."""

import torch
from torch.autograd.graph import saved_tensors_hooks

from allranks import launch, memory
from allranks.check import exercise
from allranks.check.stubs import is_filled, is_number, is_returned
from allranks.model import GPT, PIXELS, VOCABULARY, loss_of
from allranks.transformer import PRESETS, parameters

SECONDS = 20.0
DEVICE = 80e9  # bytes
LLAMA, DEVICES, MICROBATCH = PRESETS["llama2-7b"], 8, 4
CAPACITIES = (5e6, 8e6, 12e6, 20e6)


@exercise
def parameters_that_fit(answer):
    """`answer`: how many parameters, in billions, whose states of 16 bytes fill a device of 80 GB."""
    expected = memory.trainable_parameters(DEVICE, 1, 0) / 1e9
    is_number(answer)
    assert abs(answer / (DEVICE / 2e9) - 1) > 0.01, (
        "That many can be loaded, in 2 bytes each, but not trained."
    )
    assert abs(answer / (DEVICE / 4e9) - 1) > 0.01, (
        "That counts only weights and gradients; Adam has states as well."
    )
    assert abs(answer / (DEVICE / 12e9) - 1) > 0.01, "That counts only Adam's states; add what they update."
    assert abs(answer / expected - 1) <= 0.01, (
        f"{answer:g} billion parameters take {16 * answer:g} GB; the device has another size."
    )
    return f"{expected:g} billion, and not a byte is left for activations."


@exercise
def largest_batch(answer):
    """`answer(capacity)`: the largest number of pictures that the running model trains with."""

    def on_rank(batches):
        model = GPT()
        weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
        peaks = []
        for batch in batches:
            kept = {}

            def keep(tensor, kept=kept):
                storage = tensor.untyped_storage()
                if storage.data_ptr() not in weights:
                    kept[storage.data_ptr()] = storage
                return tensor

            with saved_tensors_hooks(keep, lambda tensor: tensor):
                loss = loss_of(model, torch.randint(VOCABULARY, (batch, PIXELS + 1)))
            peaks.append(12 * parameters(PRESETS["running"]) + sum(s.nbytes() for s in kept.values()))
            del loss
        return peaks

    given = [answer(capacity) for capacity in CAPACITIES]
    for batch in given:
        is_returned(batch)
    assert all(isinstance(batch, int) and batch > 0 for batch in given), (
        f"Return a whole number of pictures, at least 1; got {given}."
    )
    assert all(batch * 1e5 < capacity for batch, capacity in zip(given, CAPACITIES, strict=True)), (
        "That would be less than 0.1 MB for each picture: measure what one more takes."
    )
    batches = [pictures for batch in given for pictures in (batch, batch + 1)]
    (peaks,) = launch(on_rank, batches, world_size=1, timeout=SECONDS)
    for capacity, batch, held, with_one_more in zip(CAPACITIES, given, peaks[::2], peaks[1::2], strict=True):
        case = f"With {capacity / 1e6:g} MB and a batch of {batch}"
        assert held <= capacity, f"{case}, {held / 1e6:.2f} MB are held, which does not fit."
        assert with_one_more > capacity, f"{case}, one more picture would fit."
    return f"{', '.join(map(str, given))} pictures: measured on a rank, they fit, and one more does not."


@exercise
def layout(answer):
    """`answer`: zero_stage and recomputation with which eight devices of 80 GB train Llama-2-7B."""
    assert isinstance(answer, dict) and set(answer) == {"zero_stage", "recomputation"}, (
        "Give a layout: a dictionary with `zero_stage` and `recomputation`."
    )
    for part in answer.values():
        is_filled(part, "a stage and a recomputation")

    def held(**layout):
        return memory.training_bytes(
            LLAMA, data_parallel=DEVICES, microbatch=MICROBATCH, dropout=False, fused=True, **layout
        )

    chosen = held(**answer)
    part = max(("states", "activations"), key=lambda part: getattr(chosen, part))
    most = getattr(chosen, part) / 1e9
    assert chosen.total <= DEVICE, (
        f"It needs {chosen.total / 1e9:.0f} GB on each device, {most:.0f} GB of it for {part}."
    )
    less = {**answer, "zero_stage": max(0, answer["zero_stage"] - 1)}
    if less != answer and held(**less).total <= DEVICE:
        return f"{chosen.total / 1e9:.0f} GB. A lower stage would do, and stage 3 sends 50 % more."
    return f"{chosen.total / 1e9:.0f} GB, and one stage lower it would not fit."
