"""Operations of PyTorch for slim_gpu.py: their results as hashes, and as tensors in a file beside.

python slim_gpu_operations.py cuda|cpu TARGET
"""

import hashlib
import json
import sys
import time
import warnings
from pathlib import Path

START = time.perf_counter()

import torch  # noqa: E402  the time of it is measured
import torch.nn.functional as F  # noqa: E402, N812
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

IMPORTED = time.perf_counter() - START
warnings.simplefilter("ignore")
device, target = sys.argv[1], Path(sys.argv[2])
gpu = device == "cuda"
torch.backends.cuda.matmul.allow_tf32 = False
half = torch.bfloat16


def rand(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(
        device, dtype
    )


def spd(n):
    a = rand(n, n)
    return a @ a.T + n * torch.eye(n, device=device)


def graded(f, *inputs):
    inputs = [x.detach().requires_grad_() for x in inputs]
    out = f(*inputs)
    out = out[0] if isinstance(out, tuple) else out
    out.float().pow(2).mean().backward()
    return [out, *(x.grad for x in inputs)]


def attention(backend):
    kinds = {
        "math": SDPBackend.MATH,
        "flash": SDPBackend.FLASH_ATTENTION,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
        "cudnn": SDPBackend.CUDNN_ATTENTION,
    }

    def run():
        q, k, v = (rand(2, 4, 256, 64, dtype=half) for _ in range(3))
        with sdpa_kernel(kinds[backend]):
            return graded(
                lambda a, b, c: F.scaled_dot_product_attention(a, b, c, is_causal=True), q, k + 1, v
            )

    return run


def lstm():
    torch.manual_seed(0)
    net = torch.nn.LSTM(64, 128, 2, batch_first=True).to(device)
    return graded(net, rand(8, 20, 64))


def adam():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 8))
    net.to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2, fused=gpu)
    for _ in range(5):
        optimizer.zero_grad()
        F.cross_entropy(net(rand(32, 64)), torch.arange(32, device=device) % 8).backward()
        optimizer.step()
    return list(net.parameters())


def fp8():
    a = rand(64, 128).to(torch.float8_e4m3fn)
    b = rand(128, 64).t().contiguous().t().to(torch.float8_e4m3fn)
    one = torch.tensor(1.0, device=device)
    return torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=half)


def generator():
    g = torch.Generator(device).manual_seed(1)
    return [
        torch.randn(1000, device=device, generator=g),
        torch.randperm(1000, device=device, generator=g),
        torch.multinomial(torch.ones(50, device=device), 20, generator=g),
    ]


def sparse():
    return torch.sparse_coo_tensor(
        torch.tensor([[0, 1, 2, 2], [2, 0, 1, 3]]), torch.tensor([3.0, 4.0, 5.0, 6.0]), (4, 8)
    ).to(device)


OPERATIONS = {
    "elementwise": lambda: torch.special.erfinv(torch.tanh(rand(1000, 100)) * 0.9),
    "complex": lambda: torch.view_as_real(torch.exp(torch.complex(rand(500), rand(500)))),
    "half": lambda: torch.sin(3 * rand(1000, dtype=torch.float16)),
    "integers": lambda: (torch.arange(5000, device=device) // 7) % 13,
    "matmul": lambda: rand(257, 511) @ rand(511, 129),
    "matmul-bf16": lambda: rand(512, 512, dtype=half) @ rand(512, 256, dtype=half),
    "matmul-double": lambda: (
        rand(100, 100, dtype=torch.float64) @ rand(100, 70, dtype=torch.float64)
    ),
    "int8": lambda: torch._int_mm(*(rand(64, 64).mul(20).to(torch.int8) for _ in range(2))),
    "fp8": fp8,
    "convolution": lambda: graded(
        lambda x, w: F.conv2d(x, w, padding=1), rand(4, 8, 32, 32), rand(16, 8, 3, 3)
    ),
    "convolution-3d": lambda: F.conv3d(rand(2, 3, 8, 16, 16), rand(4, 3, 3, 3, 3)),
    "depthwise": lambda: F.conv2d(rand(2, 16, 20, 20), rand(16, 1, 3, 3), groups=16),
    "pooling": lambda: graded(lambda x: F.max_pool2d(x, 3, 2) + 0, rand(2, 3, 33, 33)),
    "batch-norm": lambda: graded(
        lambda x: F.batch_norm(x, None, None, training=True), rand(8, 16, 10, 10)
    ),
    "layer-norm": lambda: graded(lambda x: F.layer_norm(x, (256,)), rand(64, 256)),
    "softmax": lambda: graded(lambda x: F.log_softmax(x, -1), rand(64, 1000)),
    "dropout": lambda: (torch.manual_seed(3), F.dropout(rand(100, 100), 0.3))[1],
    "sort": lambda: list(torch.sort(rand(100000))),
    "topk": lambda: list(torch.topk(rand(50, 3000), 17)),
    "unique": lambda: list(torch.unique((rand(5000) * 5).long(), return_counts=True)),
    "cumsum": lambda: torch.cumsum(rand(300, 300, dtype=torch.float64), 1),
    "histogram": lambda: torch.histc(rand(10000), 50),
    "scatter-add": lambda: torch.zeros(50, device=device).scatter_add(
        0, (rand(9999) * 9).long().abs() % 50, rand(9999)
    ),
    "index-put": lambda: torch.zeros(100, device=device).index_put(
        (torch.arange(90, device=device),), rand(90)
    ),
    "embedding": lambda: graded(
        lambda w: F.embedding(torch.arange(200, device=device) % 40, w), rand(40, 32)
    ),
    "grid-sample": lambda: F.grid_sample(
        rand(1, 2, 16, 16), torch.tanh(rand(1, 9, 9, 2)), align_corners=False
    ),
    "interpolate": lambda: F.interpolate(rand(1, 3, 16, 16), scale_factor=2, mode="bicubic"),
    "fft": lambda: torch.view_as_real(torch.fft.fftn(rand(64, 64, 8))),
    "svd": lambda: torch.linalg.svdvals(rand(60, 40)),
    "cholesky": lambda: torch.linalg.cholesky(spd(100)),
    "solve": lambda: torch.linalg.solve(spd(80), rand(80, 5)),
    "eigh": lambda: torch.linalg.eigvalsh(spd(50)),
    "batched-inverse": lambda: torch.linalg.inv(torch.stack([spd(12) for _ in range(40)])),
    "sparse": lambda: sparse() @ rand(8, 5),
    "attention-math": attention("math"),
    "lstm": lstm,
    "adam": adam,
    "random": generator,
    "ctc": lambda: F.ctc_loss(
        rand(20, 4, 10).log_softmax(2),
        torch.arange(1, 25, device=device).reshape(4, 6) % 9 + 1,
        torch.full((4,), 20),
        torch.full((4,), 6),
    ),
    "cdist": lambda: torch.cdist(rand(100, 30), rand(70, 30)),
}
if gpu:
    OPERATIONS |= {f"attention-{name}": attention(name) for name in ("flash", "efficient", "cudnn")}


def flat(value):
    return list(value) if isinstance(value, (list, tuple)) else [value]


results, tensors = {}, {}
for name, operation in OPERATIONS.items():
    try:
        found = [t.detach().contiguous().cpu() for t in flat(operation())]
        digest = hashlib.sha256()
        for tensor in found:
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
        results[name], tensors[name] = digest.hexdigest(), found
    except Exception as error:
        results[name] = f"{type(error).__name__}: {error}".splitlines()[0][:300]
torch.save(tensors, f"{target}.pt")
shown = {
    "import_s": IMPORTED,
    "seconds": time.perf_counter() - START,
    "results": results,
    "archs": torch._C._cuda_getArchFlags().split(),
    "file": torch.__file__,
    "version": torch.__version__,
    "gpu": torch.cuda.get_device_name() if gpu else None,
    "capability": ".".join(map(str, torch.cuda.get_device_capability())) if gpu else None,
}
target.write_text(json.dumps(shown))
