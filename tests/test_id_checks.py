"""Ids are checked before a model receives them, and the error names the first bad one."""

import pytest
import torch

from minbert.core.id_checks import check_ids
from minbert.encoder import BertConfig, BertModel
from minbert.encoding.forward import encode_batch

V = 23


def some_ids(B, T):
    return torch.randint(1, V, (B, T), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("bad", [V, V + 100, -1, -100, 2**40])
@pytest.mark.parametrize("place", [(0, 0), (1, 3), (2, 4)])
def test_ids_without_a_row(bad, place):
    ids = some_ids(3, 5)
    ids[place] = bad
    with pytest.raises(ValueError) as error:
        check_ids(ids, V, "input_ids")
    assert str(error.value) == f"expected input_ids in [0, {V}), got {bad} at {place}"


def test_the_first_of_several_bad_ids_is_named():
    with pytest.raises(ValueError, match=r"got -3 at \(1,\)"):
        check_ids(torch.tensor([1, -3, V, 0]), V, "ids")


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bool, torch.uint8, torch.int16, torch.bfloat16]
)
def test_ids_of_another_dtype(dtype):
    with pytest.raises(ValueError, match=f"int64 or int32, got {dtype}"):
        check_ids(torch.ones(2, 3, dtype=torch.long).to(dtype), V, "ids")


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_the_smallest_and_the_largest_id_pass(dtype):
    check_ids(torch.tensor([0, 4], dtype=dtype), 5, "ids")
    check_ids(torch.zeros(0, 4, dtype=dtype), 5, "ids")
    with pytest.raises(ValueError, match=r"ids in \[0, 4\), got 4 at \(1,\)"):
        check_ids(torch.tensor([0, 4], dtype=dtype), 4, "ids")


def test_the_fast_path_checks_its_ids():
    model = BertModel(
        BertConfig(
            vocab_size=V,
            hidden_size=8,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
        )
    )
    with pytest.raises(ValueError, match=rf"input_ids in \[0, {V}\), got {V} at \(0, 1\)"):
        encode_batch(model, torch.tensor([[1, V]]))


def test_compiled_code_does_not_look():
    """Looking at the ids would split the graph."""

    def double(ids):
        check_ids(ids, V, "ids")
        return 2 * ids

    compiled = torch.compile(double, backend="eager", fullgraph=True)
    assert torch.equal(compiled(some_ids(2, 5)), 2 * some_ids(2, 5))
