// The tests of a contract, built from the shipped sources with the mutations in: BLOCKZERO_MUTATIONS is the bits of
// those of base/mutation.h that are on (contracts.py).
#include <cstdlib>

#include <gtest/gtest.h>

#include "base/mutation.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (const char* bits = std::getenv("BLOCKZERO_MUTATIONS")) {
    bz::g_mutations = static_cast<uint32_t>(std::strtoul(bits, nullptr, 10));
  }
  return RUN_ALL_TESTS();
}
