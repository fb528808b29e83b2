// The Llama forward against a second one that shares no code with it, for shapes that SmolLM2 does not have: an output
// matrix of its own, one KV head a query head or one for all, heads wider than hidden / heads, another theta.
#include <cmath>

#include <gtest/gtest.h>

#include "parity/naive_llama.h"
#include "support/models.h"
#include "support/scoring.h"

namespace bz::test {
namespace {

models::TinyLlama untied() {
  models::TinyLlama tiny;
  tiny.tie_embeddings = false;
  return tiny;
}
models::TinyLlama multi_head() {
  models::TinyLlama tiny;
  tiny.num_kv_heads = 4;
  tiny.rope_theta = 500000.0f;
  tiny.rms_norm_eps = 1e-2f;
  return tiny;
}
models::TinyLlama one_kv_head_of_wide_heads() {
  models::TinyLlama tiny;
  tiny.num_layers = 3;
  tiny.num_heads = 3;
  tiny.num_kv_heads = 1;
  tiny.head_dim = 64;
  tiny.intermediate_size = 96;
  return tiny;
}

class NaiveLlama : public testing::TestWithParam<std::string> {};

TEST_P(NaiveLlama, EveryShapeGivesTheSameLogits) {
  for (const models::TinyLlama& tiny : {untied(), multi_head(), one_kv_head_of_wide_heads()}) {
    const TemporaryModel file(tiny);
    engine::LoadOptions o = test_options(file.path());
    o.kv_dtype = DType::kF32;
    const auto model = load(o, GetParam());
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 70; ++i) ids.push_back((i * 37 + 5) % 256);
    const auto expected = naive_llama(model->file(), model->plan().config, ids);
    double error = 0, norm = 0;
    score_text(*model, ids, 33, [&](int32_t position, std::span<const float> logits) {
      for (size_t i = 0; i < logits.size(); ++i) {
        const double want = expected[static_cast<size_t>(position)][i];
        error += (logits[i] - want) * (logits[i] - want);
        norm += want * want;
      }
    });
    // f32 sums; the fast ops also round activations.
    EXPECT_LT(std::sqrt(error / norm), GetParam() == "reference" ? 1e-6 : 1e-3) << tiny.num_heads << " heads";
    EXPECT_GT(norm, 1.0);
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, NaiveLlama, testing::ValuesIn(available_isas()), isa_test_name);

}  // namespace
}  // namespace bz::test
