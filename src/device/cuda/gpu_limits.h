// What a GPU has, as far as launches are sized by it.
#pragma once

#include <cstdint>

namespace bz::device::cuda {

struct GpuLimits {
  int32_t num_sms = 0;           // multiprocessors: 132 of an H200, 114 of an H100 PCIe, 108 of an A100, 142 of an L40
  int64_t sm_shared_bytes = 0;   // shared memory of one; each cta there takes 1 KiB of it besides its own
  int64_t cta_shared_bytes = 0;  // most that a cta can have, its static part included: 99 to 227 KiB since sm_80
};

}  // namespace bz::device::cuda
