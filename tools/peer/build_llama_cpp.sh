#!/usr/bin/env bash
# Builds llama.cpp, the peer that Blockzero's CPU benchmarks run beside, natively for this machine.
#
#   tools/peer/build_llama_cpp.sh [--jobs N] [--print-dir]
#
# The sources come from the source distribution of llama-cpp-python on PyPI (SHA-256 checked). Everything stays in the
# user's cache folder, never in the tree:
#   <cache>/blockzero/peer/llama_cpp_python-<version>.tar.gz     the source distribution
#   <cache>/blockzero/peer/llama.cpp-<version>/                  the unpacked sources
#   <cache>/blockzero/peer/llama.cpp-<version>-<machine>/bin/    the programs; <machine> is a hash of CPU flags and compiler,
#                                                                so that a cache carried to another CPU is built again
# What is already there is kept: a second call returns at once, and a stopped build goes on where it was.
# The build is as its authors ship it: Release, every instruction set of this CPU, OpenMP, weight repacking.
# --print-dir prints the folder of the programs on stdout and builds nothing; exit 1 if they are not built yet.
# Needs: cmake, g++, python3 with pip, about 0.4 GB of disk; 2.5 to 13 minutes on two cores.
set -euo pipefail

readonly kVersion=0.3.36
readonly kSha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
readonly kPrograms=(llama-bench llama-batched-bench llama-completion llama-simple llama-perplexity llama-tokenize)

say() { printf 'peer: %s\n' "$*" >&2; }
die() { printf 'peer: %s\n' "$*" >&2; exit 1; }

jobs=$(nproc)
print_dir=0
while (($# > 0)); do
  case "$1" in
    --jobs) (($# >= 2)) || { say "--jobs needs a number"; exit 2; }; jobs=$2; shift 2 ;;
    --print-dir) print_dir=1; shift ;;
    -h|--help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"; exit 0 ;;
    *) say "unknown option '$1'; see --help"; exit 2 ;;
  esac
done

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cxx=${CXX:-g++}
cache="${XDG_CACHE_HOME:-$HOME/.cache}/blockzero/peer"
cpu_flags=$(grep -m1 '^flags' /proc/cpuinfo 2>/dev/null || uname -m)
machine=$(printf '%s\n%s\n' "$cpu_flags" "$("$cxx" -dumpfullversion 2>/dev/null || true)" | sha256sum | cut -c1-10)
archive="$cache/llama_cpp_python-$kVersion.tar.gz"
source_dir="$cache/llama.cpp-$kVersion"
build_dir="$cache/llama.cpp-$kVersion-$machine"
bin_dir="$build_dir/bin"

built() {
  local program
  for program in "${kPrograms[@]}" llama_logits; do [[ -x "$bin_dir/$program" ]] || return 1; done
  [[ ! "$here/llama_logits.cc" -nt "$bin_dir/llama_logits" ]]
}

if ((print_dir)); then
  built || die "llama.cpp is not built yet; run $0"
  printf '%s\n' "$bin_dir"
  exit 0
fi
if built; then
  say "llama.cpp is built: $bin_dir"
  exit 0
fi
for tool in cmake "$cxx" python3; do command -v "$tool" >/dev/null || die "$tool is missing: install it and try again"; done
mkdir -p "$cache"

# One build at a time: a second caller waits for the first, then finds its work done.
exec 9>"$cache/lock"
flock -n 9 || { say "another build is running: waiting for it"; flock 9; }
if built; then
  say "llama.cpp is built: $bin_dir"
  exit 0
fi

if [[ ! -f "$archive" ]]; then
  python3 -m pip --version >/dev/null 2>&1 || die "python3 has no pip: install python3-pip and try again"
  say "fetching the source distribution of llama-cpp-python $kVersion (77 MB)"
  python3 -m pip download --quiet --no-deps --no-binary llama-cpp-python --dest "$cache" "llama-cpp-python==$kVersion"
fi
printf '%s  %s\n' "$kSha256" "$archive" | sha256sum --check --quiet >&2 ||
  die "$archive is not the file expected (SHA-256 differs): delete it and try again"

if [[ ! -d "$source_dir" ]]; then
  say "unpacking into $source_dir"
  rm -rf "$source_dir.part"
  mkdir "$source_dir.part"
  tar -xzf "$archive" -C "$source_dir.part" --strip-components=3 "llama_cpp_python-$kVersion/vendor/llama.cpp"
  mv "$source_dir.part" "$source_dir"
fi

generator=()
command -v ninja >/dev/null && [[ ! -f "$build_dir/CMakeCache.txt" ]] && generator=(-G Ninja)
say "configuring $build_dir"
# The version numbers are given because there is no git history to read them from; nothing is fetched.
cmake -S "$source_dir" -B "$build_dir" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$cxx" \
  -DBUILD_SHARED_LIBS=ON -DGGML_NATIVE=ON -DGGML_CCACHE=OFF \
  -DLLAMA_BUILD_NUMBER=0 -DLLAMA_BUILD_COMMIT="sdist-$kVersion" \
  -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF \
  >"$cache/configure.log" 2>&1 || die "configuring failed: see $cache/configure.log"

say "building ${kPrograms[*]} with $jobs jobs (log: $cache/build.log)"
start=$SECONDS
cmake --build "$build_dir" --parallel "$jobs" --target "${kPrograms[@]}" >"$cache/build.log" 2>&1 ||
  die "the build failed: see $cache/build.log"

say "building llama_logits"
"$cxx" -std=c++20 -O2 -Wall -Wextra -I"$source_dir/include" -I"$source_dir/ggml/include" "$here/llama_logits.cc" \
  -L"$bin_dir" -Wl,-rpath,"$bin_dir" -Wl,-rpath-link,"$bin_dir" -lllama -lggml -lggml-base -o "$bin_dir/llama_logits"
built || die "a program is missing in $bin_dir after the build"
say "done in $((SECONDS - start)) s: $bin_dir"
