// What happens to the two results of a pair of weight rows, for one token (linear.h).
#pragma once

#include "ops/cuda/device.cuh"
#include "ops/cuda/linear.h"

namespace bz::ops::cuda {

__device__ inline void store_rope(const LinearParams& p, const RowPair& r, int t, bool live, float y0, float y1) {
  const KvLayer& kv = p.layer;
  if (r.part < 2) {
    const float* cos_sin = p.cos_sin + t * p.cos_sin_stride;
    const float c = cos_sin[r.rope], s = cos_sin[kv.head_dim / 2 + r.rope];
    const float rotated = y0 * c - y1 * s;
    y1 = y0 * s + y1 * c;
    y0 = rotated;
  }
  if (r.part == 0) {
    float* out = p.parts[0].out + t * p.parts[0].out_stride;
    out[r.row0] = live ? y0 : 0.0f;
    out[r.row1] = live ? y1 : 0.0f;
    return;
  }
  if (!live || p.slots[t] == kv::kPadSlot) return;
  const kv::SlotId slot = p.slots[t];
  std::byte* entry = kv.base + kv::entry_offset(r.part == 1 ? kv.k : kv.v, slot).value();
  store_kv(kv.dtype, entry, r.row0, y0);
  store_kv(kv.dtype, entry, r.row1, y1);
}

__device__ inline void finish_pair(const LinearParams& p, const RowPair& r, int t, int num_valid, float y0, float y1) {
  const bool live = t < num_valid;
  switch (p.epilogue) {
    case Epilogue::kSiluMul: {
      float* out = p.parts[0].out + t * p.parts[0].out_stride;
      out[r.row0] = live ? y0 / (1.0f + __expf(-y0)) * y1 : 0.0f;
      return;
    }
    case Epilogue::kRopeStore: return store_rope(p, r, t, live, y0, y1);
    case Epilogue::kStore:
    case Epilogue::kAccumulate: {
      float* out = p.parts[r.part].out + t * p.parts[r.part].out_stride;
      const bool add = live && p.epilogue == Epilogue::kAccumulate;
      out[r.row0] = live ? (add ? out[r.row0] + y0 : y0) : 0.0f;
      if (r.row1 >= 0) out[r.row1] = live ? (add ? out[r.row1] + y1 : y1) : 0.0f;
    }
  }
}

}  // namespace bz::ops::cuda
