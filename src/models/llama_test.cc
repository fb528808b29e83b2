// What a Llama is made of and what it refuses. What it computes: tests/parity.
#include "models/llama.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/tiny_llama.h"

namespace bz::models {
namespace {

// The bytes outlive the file and the model.
struct Made {
  explicit Made(const TinyLlama& tiny) : bytes(tiny.writer().bytes()) {
    config = model_config_from_gguf(file).value();
    ops = ops::op_table_for(device::DeviceKind::kCpu).value();
  }
  Result<std::unique_ptr<Model>> model() const { return make_llama(file, config, *ops, DType::kF16); }

  std::vector<std::byte> bytes;
  formats::GgufFile file = formats::GgufFile::parse(bytes, "m.gguf").value();
  ModelConfig config;
  const ops::OpTable* ops = nullptr;
};

TEST(Llama, SaysWhatItsCacheNeeds) {
  const Made made(TinyLlama{});
  const auto model = made.model().value();
  EXPECT_EQ(model->vocab_size(), 256);
  EXPECT_EQ(model->max_model_len(), 512);
  EXPECT_EQ(model->cache_specs().size(), 2u);
  const ops::KvLayer layer = model->kv_layer(1);
  EXPECT_EQ(layer.num_kv_heads, 2);
  EXPECT_EQ(layer.head_dim, 16);
  EXPECT_EQ(layer.dtype, DType::kF16);
}

// An embedding of its own is looked up, not read: it does not count as weights read for a token.
TEST(Llama, CountsTheBytesReadForAToken) {
  const int64_t layer = 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128 + 2 * 64) * 4;
  const int64_t output = (256 * 64 + 64) * 4;
  TinyLlama tiny;
  EXPECT_EQ(Made(tiny).model().value()->weight_bytes(), layer + output);
  tiny.tie_embeddings = false;
  EXPECT_EQ(Made(tiny).model().value()->weight_bytes(), layer + output);
}

TEST(Llama, RefusesAWeightTypeItCannotComputeWith) {
  TinyLlama tiny;
  tiny.matrix_type = DType::kQ5_0;
  const auto model = Made(tiny).model();
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(model.status().message(),
              testing::AllOf(testing::StartsWith("m.gguf: tensor blk.0.attn_q.weight: type q5_0 is not supported"),
                             testing::Not(testing::HasSubstr("\n"))));
  EXPECT_EQ(model.status().exit_code(), 2);
}

// As the CUDA kernels, which take multiples of 32, would refuse an f16 model of 2,000 columns.
TEST(Llama, RefusesRowsThatTheKernelsCannotWalk) {
  Made made(TinyLlama{});
  ops::OpTable ops = *made.ops;
  ops.weight_row_unit = 64;  // every row's: it loads
  made.ops = &ops;
  EXPECT_TRUE(made.model().ok());
  ops.weight_row_unit = 48;
  const auto model = made.model();
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().message(),
            fmt::format("m.gguf: tensor token_embd.weight: rows of 64 elements are not supported by the {} kernels, "
                        "multiples of 48 are; use --device cpu",
                        ops.isa));
  EXPECT_EQ(model.status().exit_code(), 2);
}

}  // namespace
}  // namespace bz::models
