"""Other ways to encode with the same weights on the same threads: what a user could pick instead of
minbert.

They want an environment of their own, since optimum-onnx holds transformers below 5:
pip install 'sentence-transformers[onnx,openvino]', then minbert and what it requires.
"""

import contextlib
import io
import logging
import platform
from collections.abc import Callable
from importlib.util import find_spec

import torch
from sentence_transformers import SentenceTransformer


def peers(theirs: SentenceTransformer, folder: str, threads: int) -> dict[str, SentenceTransformer]:
    """Give every peer whose libraries are installed, by name; print one line for each that is left
    out.

    theirs: in float32. folder: empty, for exported models; it must outlive the peers.
    """
    # in float32 whatever the model's file holds; the model's own folder stays as it is
    theirs.save_pretrained(folder)
    made = {}
    for name, (build, needs) in PEERS.items():
        missing = [library for library in needs if not _installed(library)]
        if missing:
            print(
                f"left out: {name}, for want of {' and '.join(missing)} (benchmarks/peers.py says what to install)"
            )
            continue
        with contextlib.redirect_stdout(io.StringIO()):  # exporters talk
            made[name] = build(folder, threads)
    return made


def _installed(library: str) -> bool:
    """Tell whether a module can be imported, without importing more of it than its parents."""
    try:
        return find_spec(library) is not None
    except ModuleNotFoundError:
        return False


def _bf16(folder, threads):
    return SentenceTransformer(folder, device="cpu", model_kwargs={"dtype": torch.bfloat16})


def _onnx(folder, threads, **options):
    import onnxruntime

    session = onnxruntime.SessionOptions()
    session.intra_op_num_threads = threads
    options = {"provider": "CPUExecutionProvider", "session_options": session, **options}
    return SentenceTransformer(folder, device="cpu", backend="onnx", model_kwargs=options)


def _onnx_optimized(folder, threads):
    from sentence_transformers.backend import export_optimized_onnx_model

    export_optimized_onnx_model(
        _onnx(folder, threads, export=True), "O3", folder, file_suffix="fused"
    )
    return _onnx(folder, threads, file_name="onnx/model_fused.onnx")


def _onnx_int8(folder, threads):
    from sentence_transformers.backend import export_dynamic_quantized_onnx_model

    export_dynamic_quantized_onnx_model(
        _onnx(folder, threads, export=True), _quantization(), folder, file_suffix="int8"
    )
    return _onnx(folder, threads, file_name="onnx/model_int8.onnx")


def _quantization() -> str:
    """Name the processor as optimum's configurations do."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return "arm64"
    return "avx512_vnni" if torch.cpu._is_vnni_supported() else "avx2"


def _openvino(folder, threads, **config):
    logging.getLogger("nncf").setLevel(logging.ERROR)
    options = {"export": True, "ov_config": {"INFERENCE_NUM_THREADS": str(threads), **config}}
    return SentenceTransformer(folder, device="cpu", backend="openvino", model_kwargs=options)


_ONNX, _OPENVINO = ("onnxruntime", "optimum.onnxruntime"), ("openvino", "optimum.intel")
# name -> (how to build it, the libraries that it needs)
PEERS: dict[str, tuple[Callable, tuple[str, ...]]] = {
    "sentence-transformers bf16": (_bf16, ()),
    "its ONNX backend fp32": (lambda f, t: _onnx(f, t, export=True), _ONNX),
    "its ONNX backend fp32, O3": (_onnx_optimized, _ONNX),
    "its ONNX backend int8": (_onnx_int8, _ONNX),
    "its OpenVINO backend fp32": (
        lambda f, t: _openvino(f, t, INFERENCE_PRECISION_HINT="f32"),
        _OPENVINO,
    ),
    "its OpenVINO backend": (_openvino, _OPENVINO),  # on a processor with bf16 that is its default
}
