#include "parity/golden.h"

#include <cstring>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "formats/test_files.h"

namespace bz::test {
namespace {

nlohmann::json read_json(const std::string& name) {
  return nlohmann::json::parse(formats::read_test_file(formats::golden_path("smollm2/" + name)));
}

}  // namespace

GoldenNll golden_nll() {
  const nlohmann::json j = read_json("nll.json");
  return {j.at("ids"), j.at("nll"), j.at("mean_nll")};
}

GoldenLogits golden_logits() {
  const nlohmann::json j = read_json("logits.json");
  GoldenLogits g;
  for (const auto& p : j.at("positions")) g.positions.push_back(p.at("position"));
  g.vocab_ids = j.at("vocab_ids").get<std::vector<int32_t>>();
  const std::string bytes = formats::read_test_file(formats::golden_path("smollm2/logits.bin"));
  g.values.resize(g.positions.size() * g.vocab_ids.size());
  BZ_CHECK_EQ(bytes.size(), g.values.size() * sizeof(float));
  std::memcpy(g.values.data(), bytes.data(), bytes.size());
  return g;
}

std::vector<GoldenGreedy> golden_greedy() {
  std::vector<GoldenGreedy> cases;
  const nlohmann::json j = read_json("greedy.json");
  for (const auto& c : j.at("cases")) {
    cases.push_back({c.at("name"), c.at("prompt_ids"), c.at("greedy_ids"), c.at("gaps")});
  }
  BZ_CHECK_EQ(cases.size(), 24u);
  return cases;
}

}  // namespace bz::test
