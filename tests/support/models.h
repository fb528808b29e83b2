// The models that tests run: a small random one, written to a file, and SmolLM2.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/loaded_model.h"
#include "models/tiny_llama.h"

namespace bz::test {

// A file in the temporary folder for as long as this object lives.
class TemporaryModel {
 public:
  explicit TemporaryModel(const models::TinyLlama& tiny);
  ~TemporaryModel();
  TemporaryModel(const TemporaryModel&) = delete;
  TemporaryModel& operator=(const TemporaryModel&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Random weights in the formats of SmolLM2's file: Q4_1 matrices, Q8_0 tied embedding. For tests on a GPU, whose guard
// works by 2 MiB, with a cache entry kGpuEntryFactor times as large; load() makes the cache larger by as much.
inline constexpr int64_t kGpuEntryFactor = 64;
models::TinyLlama quantized_tiny();

// Instruction sets this machine can run: "reference" first, the fastest last.
std::vector<std::string> available_isas();
// Those of them whose bits do not depend on the batch (PAD-9b).
std::vector<std::string> batch_invariant_isas();
// A test's name from an instruction set's.
std::string isa_test_name(const testing::TestParamInfo<std::string>& info);

// Do tests run on a GPU (BLOCKZERO_TEST_DEVICE)?
bool tests_use_gpu();
// Is the device of the tests there? With a skip in SetUp where it is not.
bool have_test_device();
#define BZ_SKIP_WITHOUT_TEST_DEVICE() \
  if (!have_test_device()) GTEST_SKIP() << "no GPU"

// Loads with the ops of an instruction set; "": what a user gets. A failure aborts with its reason.
std::unique_ptr<engine::LoadedModel> load(const engine::LoadOptions& options, const std::string& isa = {});

// Options of most tests: null guard hard, a small cache without prefixes, one thread.
engine::LoadOptions test_options(const std::string& model_path);

// SmolLM2-135M-Instruct's file; aborts with one line that says how to get it.
std::string smollm2_or_die();

}  // namespace bz::test
