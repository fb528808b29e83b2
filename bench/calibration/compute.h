// Arithmetic rates of B0: each instruction sequence that a matrix product could be made of, on registers alone.
#pragma once

#include <string>
#include <vector>

namespace bz::bench {

struct ComputeRate {
  std::string kind;  // "f32", "bf16", "int8", "int16"
  std::string isa;   // "avx2", "avx512", "avx512-vnni", "avx512-bf16"
  std::string how;   // the instructions
  double one = 0;    // GOP/s of one core with the others idle; a multiply and an add are two operations
  double all = 0;    // of all cores together
};

// Every sequence this CPU can run.
std::vector<ComputeRate> measure_compute(int cores, bool quick);

}  // namespace bz::bench
