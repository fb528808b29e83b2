#include <cstddef>
#include <cstdint>
#include <span>

#include "targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  bz::fuzz::http(std::as_bytes(std::span(data, size)));
  return 0;
}
