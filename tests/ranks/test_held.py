"""A context knows the bytes of the tensors that were made in it and are alive."""

import torch

from allranks.held import held


def test_a_tensor_counts_until_it_is_dropped_and_a_view_counts_once():
    with held() as here:
        one = torch.zeros(10)
        assert here.now() == 40
        view = one[:5]
        other = one + 1
        assert here.now() == 80
        del other
        assert here.now() == 40
        del one
        assert here.now() == 40  # the view keeps it
        del view
        assert here.now() == 0
    assert max(here.history) == 80


def test_memory_that_is_freed_behind_a_tensor_is_not_counted():
    with held() as here:
        flat = torch.ones(8)
        flat.untyped_storage().resize_(0)
        assert here.now() == 0


def test_integers_are_left_out():
    with held() as here:
        tokens = torch.arange(10)
    assert here.now() == 0
    assert len(tokens) == 10


def test_what_operations_on_lists_write_counts_as_what_an_operation_returns():
    def counted(foreach):
        with held() as here:
            weights = torch.ones(8, requires_grad=True)
            weights.grad = torch.ones(8)
            optimizer = torch.optim.AdamW([weights], foreach=foreach)
            optimizer.step()
            return here.now()

    assert counted(True) == counted(False) == 4 * (4 * 8 + 1)  # on GPUs, torch takes lists; 1: Adam's counter


def test_what_a_thread_lets_go_of_in_a_moment_is_not_counted(monkeypatch):
    with held() as here:
        message = [torch.ones(10)]
        monkeypatch.setattr("allranks.held.time.sleep", lambda _: message.clear())
        torch.ones(4)
    assert here.history[-2:] == [40, 16]
