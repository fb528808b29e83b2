// Machine: what a result is filed under: a neutral name made from the CPU's family and model and the number of cores,
// never a host name, so that results of equal machines meet in one file.
#pragma once

#include <cstdint>
#include <string>

namespace bz::bench {

struct Machine {
  std::string name;  // "zen5-2core"
  std::string cpu;   // the brand string
  int cores = 0;     // that this process may use
  int64_t l2_bytes = 0;
  int64_t l3_bytes = 0;
  double load = 0;  // 1-minute load average now: what else ran
};

Machine describe_machine();

}  // namespace bz::bench
