// Memory rates of B0: what every bandwidth-bound figure is divided by.
#pragma once

#include <cstdint>

#include "calibration/machine.h"

namespace bz::bench {

// GB/s (1e9 bytes). Read rates count bytes read; copies count bytes read plus bytes written.
struct MemoryRates {
  int64_t buffer_bytes = 0;  // above 8 times the L3: nothing of a pass is left for the next one
  double read_1 = 0;         // one thread
  double read_all = 0;       // all cores
  double read_all_4k = 0;    // all cores, 4 KiB pages: how a model file is mapped
  double l3_all = 0;         // half an L3, all cores
  double l2_1 = 0;           // half an L2, one thread
  double copy_1 = 0;         // memcpy, one thread
  double copy_all = 0;
};

MemoryRates measure_memory(const Machine& machine, bool quick);

}  // namespace bz::bench
