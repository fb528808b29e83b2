// HfConfig: the keys of a Hugging Face config.json, checked as they are read. A refusal is one line: file, key, reason.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/status.h"

namespace bz::models {

class HfConfig {
 public:
  // Does the path look like a config.json, or like a folder that has one?
  static bool is_one(const std::string& path);
  static Result<HfConfig> open(const std::string& path);
  // name: for messages. Multimodal files keep the text model's keys in "text_config": those are read, then the others.
  static Result<HfConfig> parse(const std::string& name, const std::string& text);

  const std::string& name() const { return name_; }
  const std::string& model_type() const { return model_type_; }  // of the text model
  bool has(const char* key) const { return find(key) != nullptr; }

  // A product of three counts and a few bytes fits 64 bits.
  static constexpr int32_t kMaxCount = 1 << 16;
  static constexpr int32_t kMaxTokens = 1 << 30;  // of a context or a window

  Result<int32_t> count(const char* key, int32_t max = kMaxCount) const;  // from 1
  Result<int32_t> count_or(const char* key, int32_t fallback) const;
  Result<int32_t> count_or_zero(const char* key, int32_t max = kMaxCount) const;  // 0 if it is not there, or null
  Result<double> positive_or(const char* key, double fallback) const;
  Result<bool> flag_or(const char* key, bool fallback) const;
  // Lists; empty if the key is not there. Numbers 0 to kMaxCount.
  Result<std::vector<int32_t>> numbers(const char* key) const;
  Result<std::vector<std::string>> words(const char* key) const;
  // An object's keys as a config of their own; this one if the key is not there.
  Result<HfConfig> child_or_self(const char* key) const;

  template <class... Args>
  Status refuse(const char* key, fmt::format_string<Args...> why, Args&&... args) const {
    return invalid_argument("{}: key '{}': {}", name_, key, fmt::format(why, std::forward<Args>(args)...));
  }

 private:
  const nlohmann::json* find(const char* key) const;
  Result<int32_t> number(const char* key, const nlohmann::json& value, int32_t least, int32_t most) const;

  std::string name_;
  std::string model_type_;
  std::shared_ptr<const nlohmann::json> root_;
  const nlohmann::json* text_ = nullptr;  // inside root_: where keys are looked for first
};

}  // namespace bz::models
