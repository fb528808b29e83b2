// What happens to the two results of a pair of weight rows, for one token (linear.h).
#pragma once

#include <type_traits>

#include "ops/cuda/device.cuh"
#include "ops/cuda/linear.h"

namespace bz::ops::cuda {

// What an epilogue needs from memory besides the results. A kernel may fetch it early, while it still computes.
template <Epilogue E>
struct PairInputs {
  float old0 = 0, old1 = 0;  // kStore: what is added to
  float cos = 1, sin = 0;    // kRopeStore
  int64_t slot = -1;         // kRopeStore, of k and v

  __device__ void load(const LinearParams& p, const RowPair& r, int t, int num_valid) {
    if (t >= num_valid) return;
    if constexpr (E == Epilogue::kStore) {
      if (p.accumulate == 0) return;
      const float* out = p.parts[r.part].out + t * p.parts[r.part].out_stride;
      old0 = out[r.row0];
      if (r.row1 >= 0) old1 = out[r.row1];
    }
    if constexpr (E == Epilogue::kRopeStore) {
      const float* cos_sin = p.cos_sin + t * p.cos_sin_stride;
      if (r.part < 2) cos = cos_sin[r.rope], sin = cos_sin[p.layer.head_dim / 2 + r.rope];
      if (r.part > 0) slot = p.slots[t].value();
    }
  }
};

template <Epilogue E>
__device__ inline void finish_pair(const LinearParams& p, const RowPair& r, const PairInputs<E>& in, int t,
                                   int num_valid, float y0, float y1) {
  const bool live = t < num_valid;
  if constexpr (E == Epilogue::kSiluMul) {
    float* out = p.parts[0].out + t * p.parts[0].out_stride;
    out[r.row0] = live ? __fdividef(y0, 1.0f + __expf(-y0)) * y1 : 0.0f;
    return;
  }
  if constexpr (E == Epilogue::kRopeStore) {
    const float rotated = y0 * in.cos - y1 * in.sin;
    y1 = y0 * in.sin + y1 * in.cos;
    y0 = rotated;
    if (r.part > 0) {
      if (in.slot == kv::kPadSlot.value()) return;
      const KvLayer& kv = p.layer;
      std::byte* entry = kv.base + kv::entry_offset(r.part == 1 ? kv.k : kv.v, kv::SlotId(in.slot)).value();
      store_kv(kv.dtype, entry, r.row0, y0);
      store_kv(kv.dtype, entry, r.row1, y1);
      return;
    }
  }
  float* out = p.parts[r.part].out + t * p.parts[r.part].out_stride;
  out[r.row0] = live ? y0 + in.old0 : 0.0f;
  if (r.row1 >= 0) out[r.row1] = live ? y1 + in.old1 : 0.0f;
}

template <Epilogue E>
__device__ inline void finish_pair(const LinearParams& p, const RowPair& r, int t, int num_valid, float y0, float y1) {
  PairInputs<E> in;
  in.load(p, r, t, num_valid);
  finish_pair<E>(p, r, in, t, num_valid, y0, y1);
}

// Calls launcher(kernel instance's epilogue) for the one in the parameters.
template <class Fn>
void dispatch_epilogue(Epilogue e, Fn&& fn) {
  switch (e) {
    case Epilogue::kStore: return fn(std::integral_constant<Epilogue, Epilogue::kStore>());
    case Epilogue::kSiluMul: return fn(std::integral_constant<Epilogue, Epilogue::kSiluMul>());
    case Epilogue::kRopeStore: return fn(std::integral_constant<Epilogue, Epilogue::kRopeStore>());
  }
}

}  // namespace bz::ops::cuda
