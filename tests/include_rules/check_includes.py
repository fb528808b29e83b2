#!/usr/bin/env python3
"""Checks the arrows between the folders of src/ (docs/architecture.md): who may include whom.

  check_includes.py SRC        prints one line per violation; exit 1 if there is one
  check_includes.py --self-test
"""
import pathlib
import re
import sys
import tempfile

# Folder -> prefixes of the project headers it may include, besides its own.
ALLOWED = {
    "base": [],
    "kv": ["base/"],
    "device": ["base/"],
    "ops": ["base/", "device/", "kv/slot.h", "kv/types.h"],
    "formats": ["base/"],
    "models": ["base/", "kv/spec.h", "kv/types.h", "device/", "ops/", "formats/"],
    "engine": ["base/", "kv/", "device/", "ops/", "formats/", "models/"],
    "server": ["base/", "formats/", "engine/engine.h", "engine/request.h", "engine/text_stream.h"],
    "sim": ["base/", "kv/", "device/", "ops/", "models/", "engine/"],
    "loadgen": ["base/"],
    "cli": ["base/", "kv/", "device/", "ops/", "formats/", "models/", "engine/", "server/", "sim/", "loadgen/"],
}
# Headers of one backend -> where they may be included.
BACKENDS = {
    "device/cpu/": ["device/cpu/", "device/registry.cc", "ops/cpu/"],
    "device/cuda/": ["device/cuda/", "device/registry.cc", "ops/cuda/"],
    "device/null/": ["device/null/", "device/registry.cc", "ops/null/", "sim/"],
    "ops/cpu/": ["ops/cpu/", "ops/op_table.cc", "ops/null/"],
    "ops/cuda/": ["ops/cuda/", "ops/op_table.cc"],
    "ops/null/": ["ops/null/", "ops/op_table.cc", "sim/"],
}
CUDA_HEADER = re.compile(r"^(cuda|cublas|cub/|nccl|cooperative_groups|driver_types|nvToolsExt)")
CUDA_FOLDERS = ("device/cuda/", "ops/cuda/")
# The cache core is deterministic: no threads, clock or IO.
NOT_IN_KV = {"thread", "mutex", "atomic", "condition_variable", "chrono", "fstream", "iostream", "filesystem", "cstdio",
             "random"}
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)')
# Tests beside the code may use these besides.
TEST_ONLY = ["formats/", "models/", "device/", "sim/group_specs.h"]


def check_include(path, quoted, system):
    folder = path.split("/")[0]
    header = quoted or system
    if CUDA_HEADER.match(header) and not path.startswith(CUDA_FOLDERS):
        yield f"includes the CUDA header {header}: only {', '.join(CUDA_FOLDERS)} may"
    if folder == "kv" and system in NOT_IN_KV and "_test." not in path:
        yield f"includes <{system}>: the cache core has no threads, clock, IO or randomness"
    if quoted is None or "/" not in quoted:
        return
    allowed = ALLOWED[folder] + [folder + "/"] + (TEST_ONLY if "_test." in path else [])
    if quoted.split("/")[0] in ALLOWED and not quoted.startswith(tuple(allowed)):
        yield f"includes {quoted}: {folder} may include {', '.join(ALLOWED[folder]) or 'nothing'}"
    for backend, users in BACKENDS.items():
        if quoted.startswith(backend) and not path.startswith(tuple(users)) and "_test." not in path:
            yield f"includes {quoted}: only {', '.join(users)} may name that backend"


def check_line(path, line):
    found = INCLUDE.match(line)
    if found:
        yield from check_include(path, found[1], found[2])
    is_test = "_test." in path
    code = line.split("//")[0]
    # A step is staged before it is replayed: one file launches graphs.
    if re.search(r"(\.|->)launch\(", code) and path != "engine/graph_runner.cc" and not is_test:
        yield "launches a graph: only engine/graph_runner.cc may"
    # The sanitizer must not share a mistake with what it checks.
    if path.startswith("engine/kv_sanitizer.") and re.search(r"\b(slot_of|block_at|entry_offset)\(", code):
        yield "calls kv/slot.h: the sanitizer recomputes slots with its own code"


# A rule about a folder that is gone allows what nobody looks at.
def missing_folders(src):
    named = {*ALLOWED, *BACKENDS, *CUDA_FOLDERS, *TEST_ONLY}
    named.update(*ALLOWED.values(), *BACKENDS.values())
    return [f"{name}: an include rule names it, but src has no such folder or file; see {pathlib.Path(__file__).name}"
            for name in sorted(named) if not (src / name).exists()]


def check_tree(src):
    violations = []
    for file in sorted(src.rglob("*")):
        if file.suffix not in (".h", ".cc", ".cu", ".cuh"):
            continue
        path = file.relative_to(src).as_posix()
        if path.split("/")[0] not in ALLOWED:
            violations.append(f"{path}: the folder has no include rule; add one to {pathlib.Path(__file__).name}")
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            violations += [f"{path}:{number}: {what}" for what in check_line(path, line)]
    return violations


# (file, line of code, part of the violation; None: allowed)
SELF_TEST = [
    ("base/a.h", '#include "base/b.h"', None),
    ("base/a.h", '#include "kv/types.h"', "base may include nothing"),
    ("kv/a.cc", '#include "base/check.h"', None),
    ("kv/a.cc", '#include "device/device.h"', "kv may include base/"),
    ("kv/a.cc", "#include <thread>", "no threads"),
    ("kv/a_test.cc", "#include <random>", None),
    ("device/a.h", '#include "kv/slot.h"', "device may include"),
    ("ops/a.h", '#include "kv/slot.h"', None),
    ("ops/a.h", '#include "kv/cache_manager.h"', "ops may include"),
    ("ops/a.cc", '#include "device/cpu/cpu_stream.h"', "name that backend"),
    ("ops/cpu/a.cc", '#include "device/cpu/cpu_stream.h"', None),
    ("ops/cpu/a.cc", "#include <cuda_runtime.h>", "CUDA header"),
    ("ops/cuda/a.cu", "#include <cuda_runtime.h>", None),
    ("formats/a.cc", '#include "engine/engine.h"', "formats may include"),
    ("models/a.cc", '#include "kv/block_pool.h"', "models may include"),
    ("models/a.cc", '  #  include "engine/request.h"', "models may include"),
    ("engine/a.cc", '#include "server/server.h"', "engine may include"),
    ("engine/a.cc", '#include "device/cpu/cpu_device.h"', "name that backend"),
    ("server/a.cc", '#include "engine/engine.h"', None),
    ("server/a.cc", '#include "engine/scheduler.h"', "server may include"),
    ("cli/a.cc", '#include "server/server.h"', None),
    ("engine/graph_runner.cc", "stream_->launch(*graph);", None),
    ("engine/engine_core.cc", "stream.launch(*graph);", "launches a graph"),
    ("engine/engine_core.cc", "// never stream.launch(graph) here", None),
    ("engine/kv_sanitizer.cc", "slots[t] = kv::slot_of(view, row, position);", "with its own code"),
    ("sim/a.cc", '#include "device/null/null_stream.h"', None),
    ("sim/a.cc", '#include "server/server.h"', "sim may include"),
    ("engine/a.cc", '#include "ops/null/null_ops.h"', "name that backend"),
    ("elsewhere/a.cc", "int x;", "no include rule"),
]


def self_test():
    failures = 0
    for path, line, expected in SELF_TEST:
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / path
            file.parent.mkdir(parents=True)
            file.write_text(line + "\n", encoding="utf-8")
            found = check_tree(pathlib.Path(folder))
        if bool(found) != (expected is not None) or not all(expected in v for v in found):
            print(f"self-test: {path}: {line}\n  expected: {expected}\n  found: {found}")
            failures += 1
    with tempfile.TemporaryDirectory() as folder:
        if not any(gone.startswith("ops/cuda/:") for gone in missing_folders(pathlib.Path(folder))):
            print("self-test: a rule about a folder that is not there passes")
            failures += 1
    return failures


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--self-test":
        sys.exit(1 if self_test() else 0)
    src = pathlib.Path(sys.argv[1])
    if not (src / "base" / "check.h").is_file():
        sys.exit(f"{src}: not the project's src folder")
    violations = check_tree(src) + missing_folders(src)
    for violation in violations:
        print(violation)
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
