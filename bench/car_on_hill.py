"""Wall time and peak memory of `iterq reproduce car-on-hill`, and where the time goes.

python bench/car_on_hill.py [smoke default paper]     each scale in a process of its own, imports and compilation included
"""

import json
import resource
import subprocess
import sys
import tempfile
import time


def measure(scale: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "iterq.cli", "reproduce", "car-on-hill", "--scale", scale, "--json", "--out", f"{folder}/out"]
        started = time.perf_counter()
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
        wall = time.perf_counter() - started
    if done.returncode == 2:
        sys.exit(f"{scale}: refused")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20  # of the largest process so far: run scales in growing order
    seconds = json.loads(done.stdout)["seconds"]
    inside = seconds.pop("total")
    print(f"{scale}: {wall:.1f} s in all, {wall - inside:.1f} s of it imports, peak memory {peak:.2f} GiB, exit code {done.returncode}")
    for name, spent in seconds.items():
        print(f"    {name:22s} {spent:8.1f} s of thread time")


if __name__ == "__main__":
    for scale in sys.argv[1:] or ("smoke", "default"):
        measure(scale)
