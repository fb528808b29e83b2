// The golden answers of the float32 forward (tests/golden/README.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bz::test {

struct GoldenNll {
  std::vector<int32_t> ids;
  std::vector<double> nll;  // [ids - 1] of ids[i + 1] given ids[0..i]
  double mean_nll = 0;
};
GoldenNll golden_nll();

struct GoldenLogits {
  std::vector<int32_t> positions;
  std::vector<int32_t> vocab_ids;
  std::vector<float> values;  // [positions, vocab_ids]
};
GoldenLogits golden_logits();

struct GoldenGreedy {
  std::string name;
  std::vector<int32_t> prompt_ids;
  std::vector<int32_t> greedy_ids;
  std::vector<double> gaps;  // best logit minus second best, per greedy id
};
std::vector<GoldenGreedy> golden_greedy();

}  // namespace bz::test
