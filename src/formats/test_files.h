// Where tests find the committed golden data and the downloaded model. For tests only.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/check.h"
#include "source_dir.h"

namespace bz::formats {

// <source tree>/tests/golden/<name>
inline std::string golden_path(const std::string& name) {
  return (std::filesystem::path(kSourceDir) / "tests" / "golden" / name).string();
}

inline std::string read_test_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  BZ_CHECK_MSG(in.good(), "cannot read {}", path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// SmolLM2-135M-Instruct, the model of most tests: in $BLOCKZERO_MODEL_DIR, else in the user's cache.
inline std::string smollm2_path() {
  const char* folder = std::getenv("BLOCKZERO_MODEL_DIR");
  const char* home = std::getenv("HOME");
  const std::filesystem::path base =
      folder != nullptr ? std::filesystem::path(folder)
                        : std::filesystem::path(home != nullptr ? home : "") / ".cache" / "blockzero" / "models";
  return (base / "SmolLM2-135M-Instruct.Q4_1.gguf").string();
}
inline constexpr const char* kFetchHint = " (./dev demo fetches it; BLOCKZERO_MODEL_DIR names its folder)";

}  // namespace bz::formats
