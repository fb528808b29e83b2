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

// Random weights in the formats of SmolLM2's file: Q4_1 matrices, Q8_0 tied embedding.
models::TinyLlama quantized_tiny();

// Instruction sets this machine can run: "reference" first, the fastest last.
std::vector<std::string> available_isas();
// A test's name from an instruction set's.
std::string isa_test_name(const testing::TestParamInfo<std::string>& info);

// Loads with the ops of an instruction set; "": what a user gets. A failure aborts with its reason.
std::unique_ptr<engine::LoadedModel> load(const engine::LoadOptions& options, const std::string& isa = {});

// Options of most tests: null guard hard, a small cache without prefixes, one thread.
engine::LoadOptions test_options(const std::string& model_path);

// SmolLM2-135M-Instruct's file; aborts with one line that says how to get it.
std::string smollm2_or_die();

}  // namespace bz::test
