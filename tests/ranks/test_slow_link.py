"""Behind a slow link, buckets travel one after the other, each for at least its bytes, after it is full."""

from types import SimpleNamespace

import pytest
import torch

from allranks import launch, slow_link


def new_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Linear(64, 64, bias=False) for _ in range(4)))


def loss_of(model):
    return model(torch.ones(512, 64)).square().mean()


def on_rank(caps):
    return slow_link.passes(new_model, loss_of, caps, steps=3)


def test_a_bucket_travels_when_it_is_full_and_those_before_it_have_arrived():
    for one, four in launch(on_rank, [2**20, 1], world_size=2, backend="gloo"):
        for (total, times), buckets in ((one, 1), (four, 4)):
            assert len(times) == buckets
            before = 0
            for full, start, arrival in times:
                assert start >= max(full, before)
                assert arrival - start >= 1 / buckets - 1e-6  # the link takes 1 for all bytes
                before = arrival
            assert total >= before
        assert one[0] > 1


def test_a_bucket_fills_while_the_one_before_it_travels():
    rows = slow_link.bars([[0.5, 0.5, 1.0], [1.0, 1.0, 1.5]])
    assert rows == [
        ("1 of 2", "backward", 0, 0.5),
        ("1 of 2", "communicate", 0.5, 1.0),
        ("2 of 2", "backward", 0.5, 1.0),
        ("2 of 2", "communicate", 1.0, 1.5),
    ]


@pytest.mark.parametrize("cap", [1, 2**20])
def test_gradients_are_those_of_the_chapter(cap):
    def gradients():
        model = new_model()
        slow_link.reducer(slow_link.Link(1e-9))(model, cap, cap)
        for _ in range(2):
            model.zero_grad()
            loss_of(model).backward()
        return [p.grad for p in model.parameters()]

    expected = new_model()
    loss_of(expected).backward()
    for found in launch(gradients, world_size=2, backend="gloo"):
        for gradient, p in zip(found, expected.parameters(), strict=True):
            torch.testing.assert_close(gradient, p.grad)


def test_a_message_arrives_when_its_time_is_over_and_not_before_it_is_waited_for(monkeypatch):
    slept = []
    clock = SimpleNamespace(perf_counter=lambda: 7.0, sleep=slept.append)
    monkeypatch.setattr(slow_link, "time", clock)
    finish = slow_link.later(lambda t, group: lambda: t + 1, 0.5)(1, None)
    assert slept == []
    assert finish() == 2 and slept == [0.5]
