"""Print how long kernels of the installed PyTorch take on the GPU, in ms, as one JSON line."""

import json
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH")
half = {"device": "cuda", "dtype": torch.bfloat16}


def milliseconds(call: Callable[[], object], times: int = 20) -> float:
    """Return the shortest mean of five series, after a warm-up."""
    for _ in range(5):
        call()
    torch.cuda.synchronize()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    means = []
    for _ in range(5):
        first.record()
        for _ in range(times):
            call()
        last.record()
        torch.cuda.synchronize()
        means.append(first.elapsed_time(last) / times)
    return min(means)


def attention_step() -> None:
    F.scaled_dot_product_attention(query, key, value, is_causal=True).sum().backward()
    query.grad = key.grad = value.grad = None


def training_step() -> None:
    optimizer.zero_grad()
    layer(batch).float().pow(2).mean().backward()
    optimizer.step()


results: dict[str, object] = {"torch": torch.__version__}
for size in (4096, 8192):
    left, right = (torch.randn(size, size, **half) for _ in range(2))
    results[f"matmul_bf16_{size}"] = milliseconds(lambda: left @ right)  # noqa: B023
query, key, value = (torch.randn(8, 16, 2048, 64, requires_grad=True, **half) for _ in range(3))
results["attention_default"] = milliseconds(attention_step, 10)
for name in BACKENDS:
    try:
        with sdpa_kernel(getattr(SDPBackend, name)):
            results[f"attention_{name}"] = milliseconds(attention_step, 5)
    except RuntimeError as problem:  # the build does not have it
        results[f"attention_{name}"] = str(problem)[:80]
square = torch.randn(4096, 4096, device="cuda")
rows = torch.randint(0, 4096, (4096,), device="cuda")
images = torch.randn(32, 64, 56, 56, device="cuda")
depthwise = torch.nn.Conv2d(64, 64, 3, groups=64, padding=1).cuda()
convolution = torch.nn.Conv2d(64, 128, 3, padding=1).cuda()
for name, call in {
    "softmax": lambda: square.softmax(1),
    "layer_norm": lambda: F.layer_norm(square, (4096,)),
    "sum": lambda: square.sum(1),
    "sort": lambda: square.sort(1),
    "topk": lambda: square.topk(64, 1),
    "gelu": lambda: F.gelu(square),
    "cumsum": lambda: square.cumsum(1),
    "index_add": lambda: square.index_add(0, rows, square),
    "depthwise": lambda: depthwise(images),
    "conv": lambda: convolution(images),
    "upsample": lambda: F.interpolate(images, scale_factor=2, mode="bilinear"),
    "norm": square.norm,
    "erf": square.erf,
    "median": lambda: square.median(1),
}.items():
    results[name] = milliseconds(call)
layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, dropout=0).to(**half)
optimizer = torch.optim.AdamW(layer.parameters())
batch = torch.randn(8, 1024, 1024, **half)
results["transformer_step"] = milliseconds(training_step, 5)
print(json.dumps(results))
