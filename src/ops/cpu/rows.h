// The frame of every op that treats rows alone: live rows run the op, rows past num_valid become zeros (PAD-5).
#pragma once

#include <cstring>

#include "device/cpu/worker.h"
#include "ops/params.h"

namespace bz::ops::cpu {

// Calls fn(row) for each live row of `out`, in parallel, and zeroes the rest. The only parallel_for until the barrier.
template <class Fn>
void for_each_row(device::cpu::Worker& worker, const TensorRef& out, int32_t num_valid, Fn&& fn) {
  worker.parallel_for(out.rows, 4, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      if (t < num_valid) {
        fn(t);
      } else {
        std::memset(out.row<float>(t), 0, sizeof(float) * static_cast<size_t>(out.cols));
      }
    }
  });
}

}  // namespace bz::ops::cpu
