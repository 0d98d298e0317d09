"""The exercises of the chapter on local updates."""

import torch

from allranks import local_updates
from allranks.check import exercise
from allranks.check.stubs import is_number

PARAMETERS, BITS, EVERY, STEP = 70e9, 4, 50, 5  # parameters, bits, steps, seconds


@exercise
def outer_step(answer):
    """`answer(start, ends, speed, rate, momentum)` returns weights and momentum."""
    for seed, (rate, momentum) in enumerate(((1.0, 0.0), (0.7, 0.0), (0.7, 0.9))):
        generator = torch.Generator().manual_seed(seed)
        start, speed = torch.randn(2, 50, generator=generator)
        speed = speed if momentum else torch.zeros(50)
        ends = [start + 0.1 * torch.randn(50, generator=generator) for _ in range(3)]
        expected = start.clone()
        outer = torch.optim.SGD([expected], rate, momentum, nesterov=momentum > 0)
        if momentum:
            outer.state[expected]["momentum_buffer"] = speed.clone()
        expected.grad = start - torch.stack(ends).mean(0)
        outer.step()
        weights, new = answer(start.clone(), [end.clone() for end in ends], speed.clone(), rate, momentum)
        gradient, mean = expected.grad, torch.stack(ends).mean(0)
        assert not torch.allclose(weights, start + rate * gradient, atol=1e-5), (
            "The weights move away from the ranks' weights: check the sign of the outer gradient."
        )
        assert rate == 1 or not torch.allclose(weights, mean, atol=1e-5), (
            "That is the plain average; the outer learning rate is 0.7."
        )
        if momentum:
            plain = start - rate * (momentum * speed + gradient)
            assert not torch.allclose(weights, plain, atol=1e-5), (
                "That is momentum without Nesterov's look-ahead, one more step along the new momentum."
            )
            assert torch.allclose(new, momentum * speed + gradient, atol=1e-5), (
                "The new momentum is wrong; expected momentum · speed + gradient."
            )
        assert torch.allclose(weights, expected, atol=1e-5), (
            f"With rate {rate} and momentum {momentum} the weights differ from torch.optim.SGD's."
        )
    return "This is DiLoCo's outer step, exactly as torch.optim.SGD takes it."


@exercise
def gbits(answer):
    """`answer`: Gbit/s on average for 70 billion parameters in 4 bits, once in 50 steps of 5 s."""
    right = local_updates.bits_per_step(PARAMETERS, BITS, EVERY) / STEP / 1e9
    is_number(answer)
    assert abs(answer - right / 8) > 0.01, "That is in gigabytes a second; give gigabits."
    assert abs(answer - right * 4) > 0.1, "That is with 16 bits a parameter; here there are 4."
    assert abs(answer - right * EVERY) > 1, "That is for sending at every step."
    assert abs(answer - right * STEP) > 0.1, "That is Gbit per step; a step takes 5 s."
    assert abs(answer - right) < 0.02, (
        f"{answer:g} is not right: how many bits are sent, and in how many seconds?"
    )
    return f"{right:.2f} Gbit/s; data parallelism in 16 bits needs 224."
