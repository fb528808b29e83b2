// The tests of a contract, built from the shipped sources with the mutations in: BLOCKZERO_MUTATION=N switches the N-th
// of base/mutation.h on (contracts.py).
#include <cstdlib>

#include <gtest/gtest.h>

#include "base/mutation.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (const char* number = std::getenv("BLOCKZERO_MUTATION")) bz::g_mutations = 1u << std::atoi(number);
  return RUN_ALL_TESTS();
}
