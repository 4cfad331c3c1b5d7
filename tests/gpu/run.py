#!/usr/bin/env python3
"""Runs the tests that need a GPU, from a build folder or from what --pack gathered, and writes one
JSON file: each test, each run of compute-sanitizer, the device, and whether all passed. A pack runs
in any folder, and has lowkey, device_bench and sdpa_bench.py beside the tests."""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import time

KERNEL_TESTS = re.compile(r"^cuda_(?!device_fault)")  # that one breaks the device on purpose
# Tools of compute-sanitizer, with their options and environment.
SANITIZERS = {
    # A call may fail: a test asks for more memory than there is.
    "memcheck": (["--report-api-errors", "no"], {}),
    # Of our own kernels alone.
    "racecheck": ([], {"LOWKEY_CUDA_PRODUCTS": "tiles"}),
}
LIBRARY = "lib/lowkey/liblowkey_cuda.so"  # where programs of bin/ look for it
# What goes into a pack beside tests, of the build folder and of the source tree. Tests find files of
# the tree in the folder that LOWKEY_SOURCE_DIR names.
PROGRAMS = ["lowkey", "bench/device_bench"]
SCRIPTS = ["bench/sdpa_bench.py"]
SOURCES = ["models/tales", "tests/golden"]
# Every machine's own, or the driver's and toolkit's that must fit the machine's GPU.
NOT_PACKED = re.compile(r"^(ld-linux|libc\.|libm\.|libdl\.|librt\.|libpthread\.|libstdc\+\+|libgcc_s"
                        r"|libcuda|libcublas)")


def tests_of_build(folder):
    """Of ctest's tests labeled gpu: name, command, environment."""
    shown = subprocess.run(["ctest", "--test-dir", folder, "-L", "^gpu$", "--show-only=json-v1"],
                           check=True, capture_output=True, text=True).stdout
    tests = []
    for test in json.loads(shown)["tests"]:
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        environment = dict(v.split("=", 1) for v in properties.get("ENVIRONMENT", []))
        tests.append({"name": test["name"], "command": test["command"],
                      "environment": environment})
    return tests


def tests_of_pack(folder):
    tests = json.loads((folder / "tests.json").read_text())
    for test in tests:
        test["command"][0] = str(folder / test["command"][0])
        test["environment"]["LOWKEY_CUDA_LIBRARY"] = str(folder / LIBRARY)
        test["environment"]["LOWKEY_SOURCE_DIR"] = str(folder / "source")
    return tests


def libraries_of(path):
    """Of what a program or library is linked with, the files to pack."""
    said = subprocess.run(["ldd", path], check=True, capture_output=True, text=True).stdout
    found = re.findall(r"^\s*(\S+) => (/\S+)", said, re.MULTILINE)
    return {name: at for name, at in found if not NOT_PACKED.match(name)}


def pack(tests, build, folder):
    tree = pathlib.Path(__file__).resolve().parent.parent.parent
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    (folder / "lib/lowkey").mkdir(parents=True, exist_ok=True)
    files = {}
    for test in tests:
        program = test["command"][0]
        library = test["environment"].pop("LOWKEY_CUDA_LIBRARY")
        files[program] = f"bin/{os.path.basename(program)}"
        files[library] = LIBRARY
        test["command"][0] = files[program]
    files.update({str(build / p): f"bin/{os.path.basename(p)}" for p in PROGRAMS})
    for owner in list(files):
        for name, at in libraries_of(owner).items():
            files[at] = f"lib/{name}"
    for source, to in files.items():
        shutil.copy(source, folder / to)
        subprocess.run(["strip", folder / to], check=True)
    for script in SCRIPTS:
        shutil.copy(tree / script, folder)
    for source in SOURCES:
        shutil.copytree(tree / source, folder / "source" / source, dirs_exist_ok=True)
    shutil.copy(__file__, folder / "run.py")
    (folder / "tests.json").write_text(json.dumps(tests, indent=1) + "\n")
    # Nothing in the pack may say where it was made.
    for test in tests:
        for word in test["command"] + list(test["environment"].values()):
            if str(tree) in word or os.path.isabs(word):
                sys.exit(f"error: {test['name']}: {word}, expected no path outside of the pack")
    archive = folder.parent / f"{folder.name}.tar.xz"
    with tarfile.open(archive, "w:xz", preset=9) as out:
        out.add(folder, arcname=folder.name)
    size = archive.stat().st_size / 1e6
    print(f"{folder}: {len(tests)} tests in {len(files)} files; {archive}: {size:.1f} MB")


def cublas_folders():
    """Where libcublasLt may be when neither the loader nor LD_LIBRARY_PATH knows."""
    places = [pathlib.Path("/usr/local/cuda/lib64")]
    for root in sys.path:
        if root.endswith("-packages"):
            places += [p.parent for p in pathlib.Path(root).glob("**/nvidia/**/libcublasLt.so.*")]
    return [str(p) for p in places if any(p.glob("libcublasLt.so.*"))]


def run(command, environment, limit):
    """Status (passed, failed, skipped, timed out), seconds, the end of what it said."""
    began = time.monotonic()
    try:
        done = subprocess.run(command, env={**os.environ, **environment}, timeout=max(limit, 1),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said = done.stdout.decode(errors="replace")
        status = "passed" if done.returncode == 0 else "failed"
        # Then all of the program's tests are; single ones have their reasons.
        if status == "passed" and "no CUDA device" in said:
            status = "skipped"
    except subprocess.TimeoutExpired as late:
        said = (late.stdout or b"").decode(errors="replace")
        status = "timed out"
    result = {"status": status, "seconds": round(time.monotonic() - began, 2)}
    if status != "passed":
        result["output"] = said[-4000:]
    return result


def first_line(command):
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.strip().split("\n")[0]
    except OSError:
        return None


def find_sanitizer():
    found = shutil.which("compute-sanitizer", path=os.environ["PATH"] + ":/usr/local/cuda/bin")
    return found or next(map(str, pathlib.Path("/usr/local").glob(
        "cuda*/**/compute-sanitizer/compute-sanitizer")), None)


def jobs_of(tests, phase, sanitizer):
    """Test and tool (None: the test alone) of each run."""
    jobs = [(test, None) for test in tests] if phase != "sanitizers" else []
    if phase == "tests" or not sanitizer:
        return jobs
    return jobs + [(test, tool) for tool in SANITIZERS for test in tests
                   if KERNEL_TESTS.match(test["name"])
                   and not (tool == "racecheck" and test["name"].endswith("_cublas_gpu"))]


def run_all(tests, phase, n_at_once, limit_s, each_s, library_folders):
    began = time.monotonic()
    left = lambda: min(each_s, limit_s - (time.monotonic() - began))
    library_path = ":".join(library_folders + [os.environ.get("LD_LIBRARY_PATH", "")]).strip(":")
    results = {
        "device": first_line(["nvidia-smi", "--query-gpu=name,driver_version",
                              "--format=csv,noheader"]),
        "tests": [], "sanitizer": find_sanitizer(), "sanitized": [],
    }

    def run_job(test, tool):
        options, environment = SANITIZERS[tool] if tool else ([], {})
        environment = {**environment, **test["environment"], "LD_LIBRARY_PATH": library_path}
        checked = [results["sanitizer"], "--tool", tool, "--error-exitcode", "9"] if tool else []
        result = run(checked + options + test["command"], environment, left())
        label = f"{test['name']} ({tool})" if tool else test["name"]
        print(f"{result['status']:>9} {result['seconds']:7.2f} s  {label}", flush=True)
        kind = {"tool": tool} if tool else {}
        return "sanitized" if tool else "tests", {"name": test["name"], **kind, **result}

    with concurrent.futures.ThreadPoolExecutor(n_at_once) as pool:
        jobs = [pool.submit(run_job, *job) for job in jobs_of(tests, phase, results["sanitizer"])]
        for job in jobs:
            kind, result = job.result()
            results[kind].append(result)
    results["seconds"] = round(time.monotonic() - began, 2)
    runs = results["tests"] + results["sanitized"]
    results["passed"] = bool(runs) and all(r["status"] == "passed" for r in runs)
    return results


def main():
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, help="a build folder; default: beside this")
    parser.add_argument("--pack", type=pathlib.Path, help="gather the tests there; run nothing")
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("results.json"))
    parser.add_argument("--only", type=re.compile, default=re.compile(""), metavar="PATTERN",
                        help="tests whose names the regular expression finds something in")
    parser.add_argument("--phase", choices=["all", "tests", "sanitizers"], default="all",
                        help="the tests alone, or under compute-sanitizer alone")
    parser.add_argument("--limit", type=float, default=420, help="seconds for everything")
    parser.add_argument("--each", type=float, default=240, help="seconds for one test")
    parser.add_argument("--jobs", type=int, default=1, help="tests at once, which share the GPU")
    args = parser.parse_args()
    tests = tests_of_build(args.build) if args.build else tests_of_pack(here)
    if not tests:
        sys.exit("error: no test is labeled gpu")
    if args.pack:
        pack(tests, args.build.resolve(), args.pack.resolve())
        return 0
    tests = [test for test in tests if args.only.search(test["name"])]
    if not tests:
        sys.exit(f"error: --only {args.only.pattern}: no test has such a name")
    folders = ([] if args.build else [str(here / "lib")]) + cublas_folders()
    results = run_all(tests, args.phase, args.jobs, args.limit, args.each, folders)
    args.results.write_text(json.dumps(results, indent=1) + "\n")
    print(f"{'passed' if results['passed'] else 'NOT passed'}: {args.results}")
    return 0 if results["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
