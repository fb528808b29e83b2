#include "calibration/memory.h"

#include <immintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "calibration/team.h"

// g++ 12 takes the undefined operand inside its own intrinsics for a mistake of ours (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace bz::bench {
namespace {

constexpr int64_t kLine = 64;

// A thread's part of a buffer, read as `streams` sequences side by side: some memory systems want more than one.
struct ReadJob {
  const char* data;
  int64_t bytes;
  int streams;
};
using ReadFn = uint64_t (*)(const ReadJob&);

__attribute__((target("avx2"))) uint64_t read_avx2(const ReadJob& job) {
  const int64_t part = job.bytes / job.streams / (4 * kLine) * (4 * kLine);
  __m256i sum[8] = {};
  for (int64_t i = 0; i < part; i += 4 * kLine) {
    for (int s = 0; s < job.streams; ++s) {
      const auto* p = reinterpret_cast<const __m256i*>(job.data + s * part + i);
      for (int j = 0; j < 8; ++j) sum[j] = _mm256_xor_si256(sum[j], _mm256_loadu_si256(p + j));
    }
  }
  for (int j = 1; j < 8; ++j) sum[0] = _mm256_xor_si256(sum[0], sum[j]);
  return static_cast<uint64_t>(_mm256_extract_epi64(sum[0], 0));
}

__attribute__((target("avx512f"))) uint64_t read_avx512(const ReadJob& job) {
  const int64_t part = job.bytes / job.streams / (8 * kLine) * (8 * kLine);
  __m512i sum[8] = {};
  for (int64_t i = 0; i < part; i += 8 * kLine) {
    for (int s = 0; s < job.streams; ++s) {
      const char* p = job.data + s * part + i;
      for (int j = 0; j < 8; ++j) sum[j] = _mm512_xor_si512(sum[j], _mm512_loadu_si512(p + j * kLine));
    }
  }
  for (int j = 1; j < 8; ++j) sum[0] = _mm512_xor_si512(sum[0], sum[j]);
  return static_cast<uint64_t>(_mm512_reduce_add_epi64(sum[0]));
}

class Pages {
 public:
  Pages(int64_t bytes, bool huge) : bytes_(bytes) {
    void* p = mmap(nullptr, size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
      std::fprintf(stderr, "b0_cpu: cannot allocate %lld bytes; free some memory\n", static_cast<long long>(bytes));
      std::exit(1);
    }
    data_ = static_cast<char*>(p);
    madvise(data_, size(), huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    std::memset(data_, 1, size());  // not the shared zero page
  }
  ~Pages() { munmap(data_, size()); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  size_t size() const { return static_cast<size_t>(bytes_); }
  char* data_ = nullptr;
  int64_t bytes_;
};

// GB/s of `threads` threads that read `bytes` of the buffer `repeat` times, each its own part: the best way found.
double read_rate(const Pages& buffer, int64_t bytes, int threads, int passes, int64_t repeat) {
  const int64_t share = bytes / threads / (64 * kLine) * (64 * kLine);
  std::vector<ReadFn> ways = {read_avx2};
  if (__builtin_cpu_supports("avx512f")) ways.push_back(read_avx512);
  double best = 0;
  for (ReadFn read : ways) {
    for (int streams : {1, 2, 4}) {
      const double t = best_seconds(threads, passes, [&](int index) {
        uint64_t sum = 0;
        for (int64_t i = 0; i < repeat; ++i) sum += read({buffer.data() + index * share, share, streams});
        asm volatile("" ::"r"(sum));
      });
      best = std::max(best, static_cast<double>(share * threads * repeat) / t / 1e9);
    }
  }
  return best;
}

double copy_rate(const Pages& buffer, int threads, int passes) {
  const int64_t share = buffer.bytes() / 2 / threads / kLine * kLine;
  const double t = best_seconds(threads, passes, [&](int index) {
    char* to = buffer.data() + (2 * index + 1) * share;
    std::memcpy(to, buffer.data() + 2 * index * share, static_cast<size_t>(share));
    asm volatile("" ::"r"(to) : "memory");
  });
  return static_cast<double>(2 * share * threads) / t / 1e9;
}

}  // namespace

MemoryRates measure_memory(const Machine& machine, bool quick) {
  const int passes = quick ? 2 : 6;
  MemoryRates r;
  r.buffer_bytes = std::max<int64_t>(9 * machine.l3_bytes, int64_t{320} << 20);
  {
    const Pages buffer(r.buffer_bytes, true);
    r.read_1 = read_rate(buffer, buffer.bytes(), 1, passes, 1);
    r.read_all = read_rate(buffer, buffer.bytes(), machine.cores, passes, 1);
    r.copy_1 = copy_rate(buffer, 1, passes);
    r.copy_all = copy_rate(buffer, machine.cores, passes);
    r.l3_all = read_rate(buffer, machine.l3_bytes / 2, machine.cores, passes, 2);
    r.l2_1 = read_rate(buffer, machine.l2_bytes / 2, 1, passes, 16);
  }
  const Pages small(r.buffer_bytes, false);
  r.read_all_4k = read_rate(small, small.bytes(), machine.cores, passes, 1);
  return r;
}

}  // namespace bz::bench
