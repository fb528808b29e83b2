#include "models/hf_config.h"

#include <cmath>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "formats/text_file.h"

namespace bz::models {
namespace {

constexpr size_t kMaxFileBytes = 16 << 20;

std::filesystem::path config_path(const std::string& path) {
  const std::filesystem::path p(path);
  std::error_code ignored;
  return std::filesystem::is_directory(p, ignored) ? p / "config.json" : p;
}

}  // namespace

bool HfConfig::is_one(const std::string& path) {
  std::error_code ignored;
  return config_path(path).extension() == ".json" && std::filesystem::is_regular_file(config_path(path), ignored);
}

Result<HfConfig> HfConfig::open(const std::string& path) {
  const std::filesystem::path file = config_path(path);
  BZ_ASSIGN(const std::string text, formats::read_text_file(file.string(), kMaxFileBytes));
  return parse(file.string(), text);
}

Result<HfConfig> HfConfig::parse(const std::string& name, const std::string& text) {
  HfConfig config;
  config.name_ = name;
  auto root = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded() || !root.is_object()) return invalid_argument("{}: not a JSON object", name);
  config.root_ = std::make_shared<const nlohmann::json>(std::move(root));
  const auto nested = config.root_->find("text_config");
  config.text_ = nested != config.root_->end() && nested->is_object() ? &*nested : config.root_.get();
  const nlohmann::json* type = config.find("model_type");
  if (type == nullptr || !type->is_string()) return invalid_argument("{}: key 'model_type' is no string", name);
  config.model_type_ = type->get<std::string>();
  return config;
}

const nlohmann::json* HfConfig::find(const char* key) const {
  for (const nlohmann::json* object : {text_, root_.get()}) {
    const auto it = object->find(key);
    if (it != object->end() && !it->is_null()) return &*it;
  }
  return nullptr;
}

Result<int32_t> HfConfig::number(const char* key, const nlohmann::json& value, int32_t least, int32_t most) const {
  if (!value.is_number_integer() || value < least || value > most)
    return refuse(key, "expected a whole number from {} to {}", least, most);
  return value.get<int32_t>();
}

Result<int32_t> HfConfig::count(const char* key, int32_t max) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return refuse(key, "is missing");
  return number(key, *value, 1, max);
}

Result<int32_t> HfConfig::count_or(const char* key, int32_t fallback) const {
  return has(key) ? count(key) : Result<int32_t>(fallback);
}

Result<int32_t> HfConfig::count_or_zero(const char* key, int32_t max) const {
  const nlohmann::json* value = find(key);
  return value == nullptr ? Result<int32_t>(0) : number(key, *value, 0, max);
}

Result<double> HfConfig::positive_or(const char* key, double fallback) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return fallback;
  const double number = value->is_number() ? value->get<double>() : 0.0;
  if (!(number > 0 && std::isfinite(number))) return refuse(key, "expected a number above 0");
  return number;
}

Result<bool> HfConfig::flag_or(const char* key, bool fallback) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) return refuse(key, "expected true or false");
  return value->get<bool>();
}

Result<std::vector<int32_t>> HfConfig::numbers(const char* key) const {
  std::vector<int32_t> out;
  const nlohmann::json* list = find(key);
  if (list == nullptr) return out;
  if (!list->is_array()) return refuse(key, "expected a list of numbers");
  for (const nlohmann::json& value : *list) {
    BZ_ASSIGN(const int32_t n, number(key, value, 0, kMaxCount));
    out.push_back(n);
  }
  return out;
}

Result<std::vector<std::string>> HfConfig::words(const char* key) const {
  std::vector<std::string> out;
  const nlohmann::json* list = find(key);
  if (list == nullptr) return out;
  if (!list->is_array()) return refuse(key, "expected a list of words");
  for (const nlohmann::json& value : *list) {
    if (!value.is_string()) return refuse(key, "expected a list of words");
    out.push_back(value.get<std::string>());
  }
  return out;
}

Result<HfConfig> HfConfig::child_or_self(const char* key) const {
  const nlohmann::json* object = find(key);
  if (object == nullptr) return *this;
  if (!object->is_object()) return refuse(key, "expected an object");
  HfConfig child = *this;
  child.text_ = object;
  return child;
}

}  // namespace bz::models
