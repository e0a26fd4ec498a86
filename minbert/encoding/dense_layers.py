"""Linear layers behind a pooling, stored as the `Dense` module of sentence-transformers."""

from __future__ import annotations

__all__ = [
    "ACTIVATIONS",
    "Dense",
    "check_widths",
    "sequential",
    "maps_of",
    "apply_dense",
    "named_maps",
    "width_after",
]

from copy import deepcopy
from pathlib import Path

import torch
from torch import Tensor, nn

from ..core.files import check_fields, quoted, read_json, write_json
from ..core.safetensors_io import check_numbers, check_tensors, load_tensors, save_tensors

# each without arguments
ACTIVATIONS = {kind.__name__: kind for kind in (nn.Identity, nn.Tanh, nn.ReLU, nn.GELU)}
_USUAL = {
    "module_input_name": ("sentence_embedding",),
    "module_output_name": ("sentence_embedding", None),
    "use_residual": (False,),
}


class Dense(nn.Module):
    """Map sentence vectors: z = g(A u + b), as `sentence_transformers.models.Dense` does. Raises
    ValueError for a g that is none of `ACTIVATIONS`.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        activation: str = "Identity",
        # D, K
    ):
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(
                f"expected an activation among {', '.join(ACTIVATIONS)}, got {quoted(activation)}"
            )
        self.linear, self.activation = (
            nn.Linear(in_features, out_features, bias),
            ACTIVATIONS[activation](),
        )

    width = property(lambda self: self.linear.in_features, doc="Numbers a vector has before, D.")
    out_features = property(
        lambda self: self.linear.out_features, doc="Numbers a vector has afterwards, K."
    )

    def forward(
        self,
        vectors: Tensor,
        # (N, D) float -> (N, K), same dtype, differentiable
    ) -> Tensor:
        """Apply the map."""
        return self.activation(self.linear(vectors.to(self.linear.weight.dtype))).to(vectors.dtype)

    @classmethod
    def of(cls, transform: nn.Module) -> Dense:  # on the CPU, float32
        """Write an affine map, such as a fitted `Whiten`, as one Dense: sentence-transformers then
        needs no class of ours.

        It is measured at zero and at every unit vector, in float64. Raises ValueError for a map
        that is not affine, such as a flow, or whose first part says neither in `width` nor in
        `in_features` what it takes.
        """
        first = next(iter(maps_of(transform)), None)
        width = getattr(first, "width", getattr(first, "in_features", None))
        if width is None:
            raise ValueError(
                f"expected an affine map that begins with one of a known width, got {named_maps(transform)}"
            )
        affine = deepcopy(transform).cpu().double()
        points = torch.cat(
            [
                torch.zeros(1, width),
                torch.eye(width),
                torch.randn(64, width, generator=torch.Generator().manual_seed(0)),
            ]
        )
        with torch.no_grad():
            zero, units, others = (x := apply_dense(points.double(), affine)).split([1, width, 64])
            weight = (units - zero).T
            gap = (others - zero - points[-64:].double() @ weight.T).abs().max()
            # rounding of a map in float32 is a hundredth of that; NaN fails, too
            if not gap <= 1e-4 * x.abs().max():
                raise ValueError(
                    f"expected an affine map, got {named_maps(transform)}, which misses a plane by {gap:.2g}"
                )
            dense = cls(width, len(weight))
            dense.linear.weight.copy_(weight), dense.linear.bias.copy_(zero[0])
        return dense.eval()

    def save(self, folder: str | Path, **where: str) -> None:
        """Write config.json and model.safetensors, in the weights' own dtype; `where`: names of
        what sentence-transformers reads and writes, if others than usual.
        """
        kind, linear = type(self.activation), self.linear
        write_json(
            Path(folder) / "config.json",
            {
                "in_features": linear.in_features,
                "out_features": linear.out_features,
                "bias": linear.bias is not None,
                "activation_function": f"{kind.__module__}.{kind.__qualname__}",
                **where,
            },
        )
        save_tensors(
            Path(folder) / "model.safetensors",
            {key: x.detach().cpu().clone().contiguous() for key, x in self.state_dict().items()},
        )

    @classmethod
    def load(
        cls,
        folder: str | Path,
        **where: str,
        # on the CPU, float32, in eval mode; `where` as in `save`
    ) -> Dense:
        """Read a folder that either library wrote. Raises ValueError naming the file for a setting
        we do not have, or tensors of other names, shapes or numbers.
        """
        file = Path(folder) / "config.json"
        config = check_fields(
            {"bias": True} | read_json(file),
            file,
            in_features=int,
            out_features=int,
            bias=bool,
            activation_function=str,
        )
        for name, known in (_USUAL | {name: (value,) for name, value in where.items()}).items():
            if config.get(name, _USUAL[name][0]) not in known:
                raise ValueError(
                    f"{file}: expected {name} to be {known[0]!r}, got {quoted(config.get(name))}"
                )
        module, _, kind = config["activation_function"].rpartition(".")
        if (
            not f"{module}.".startswith("torch.nn.")
            or kind not in ACTIVATIONS
            or not all(0 < config[name] < 2**20 for name in ("in_features", "out_features"))
        ):
            raise ValueError(
                f"{file}: expected a linear map and {', '.join(ACTIVATIONS)} of torch.nn, got {config['in_features']} by "
                f"{config['out_features']} and {quoted(config['activation_function'])}"
            )
        # sizes in a file may be anything: nothing is set aside before the tensors are there
        with torch.device("meta"):
            dense = cls(config["in_features"], config["out_features"], config["bias"], kind).float()
        # copied, or the weights would change with the file
        state = {
            name: x.to(torch.float32, copy=True)
            for name, x in check_numbers(load_tensors(folder), folder).items()
        }
        dense.load_state_dict(check_tensors(folder, state, dense.state_dict()), assign=True)
        return dense.eval()


def maps_of(transform: nn.Module | None) -> list[nn.Module]:
    """Give the maps of a transform, one after another."""
    if type(transform) is nn.Sequential:
        return [part for inner in transform for part in maps_of(inner)]
    return [] if transform is None else [transform]


def apply_dense(
    vectors: Tensor,
    transform: nn.Module | None,
    # (N, D) float -> (N, K), differentiable
) -> Tensor:
    """Apply all maps of a transform."""
    for part in maps_of(transform):
        found = part(vectors)
        # a flow gives (vectors, log_det)
        vectors = found[0] if isinstance(found, tuple) else found
    return vectors


def width_after(transform: nn.Module | None, width: int) -> int:
    """Give the length of a vector behind a transform: what the last map that changes it says in
    `out_features`.
    """
    return next(
        (m.out_features for m in reversed(maps_of(transform)) if hasattr(m, "out_features")), width
    )


def named_maps(transform: nn.Module | None) -> str:
    """Say in words which maps there are; their numbers are not in it."""

    def name(part):
        return type(part).__name__ + (
            f" {type(part.activation).__name__}" if isinstance(part, Dense) else ""
        )

    return ", ".join(map(name, maps_of(transform))) or "NoneType"


def sequential(maps: list[nn.Module]) -> nn.Module | None:
    """Make one transform of maps; what `maps_of` takes apart."""
    return nn.Sequential(*maps) if len(maps) > 1 else maps[0] if maps else None


def check_widths(maps: list[nn.Module], width: int, where: str | Path) -> None:
    """Make sure that each linear map fits the vectors it gets. Raises ValueError naming `where`."""
    for part in maps:
        if isinstance(part, Dense) and part.linear.in_features != width:
            raise ValueError(
                f"{where}: expected a Dense for vectors of width {width}, got one for {part.linear.in_features}"
            )
        width = width_after(part, width)
