"""Answers as nvidia-smi would with the pretended GPU: lists, and queries as CSV."""

import json
import os
import sys


def main(words):
    note = {"note": "gpu", "name": "nvidia-smi", "where": "a call of nvidia-smi"}
    with open(os.environ["STOKER_NOTES"] + "/gpu", "a") as stream:
        stream.write(json.dumps(note) + "\n")
    gpu = json.loads(os.environ.get("STOKER_PRETENDED", "null"))
    if not gpu or not gpu.get("visible"):
        sys.stderr.write("NVIDIA-SMI has failed because no devices were found\n")
        raise SystemExit(6)
    major, minor = gpu["capability"]
    fields = {
        "name": gpu["name"],
        "gpu_name": gpu["name"],
        "compute_cap": f"{major}.{minor}",
        "count": "1",
        "index": "0",
        "memory.total": "81559 MiB",
        "driver_version": "580.00",
    }
    query = next((w.partition("=")[2] for w in words if w.startswith("--query-gpu")), None)
    if query is None:
        print(f"GPU 0: {gpu['name']} (UUID: GPU-0)  CUDA Version: {gpu['cuda']}")
        return
    names = query.split(",")
    if not any("noheader" in word for word in words):
        print(", ".join(names))
    print(", ".join(fields.get(name.strip(), "[N/A]") for name in names))


if __name__ == "__main__":
    main(sys.argv[1:])
