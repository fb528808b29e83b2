#include "formats/gguf.h"

#include <cstring>
#include <utility>

#include "formats/gguf_reader.h"
#include "formats/utf8.h"

namespace bz::formats {

Result<GgufFile> GgufFile::open(const std::string& path) {
  BZ_ASSIGN(MappedFile mapped, MappedFile::open(path));
  BZ_ASSIGN(GgufFile file, parse(mapped.bytes(), path));
  file.file_ = std::move(mapped);
  return file;
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes, std::string name) {
  GgufFile file;
  file.name_ = std::move(name);
  file.bytes_ = bytes;
  BZ_TRY(GgufReader(file).read());
  return file;
}

const GgufMetadata* GgufFile::find(std::string_view key) const {
  const auto it = metadata_index_.find(key);
  return it == metadata_index_.end() ? nullptr : &metadata_[it->second];
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

Result<const GgufMetadata*> GgufFile::require(std::string_view key) const {
  if (const GgufMetadata* found = find(key)) return found;
  return invalid_argument("{}: key '{}' is missing; the file is no complete model", name_, key);
}

Status GgufFile::wrong_type(std::string_view key, const GgufValue& value, std::string_view wanted) const {
  return invalid_argument("{}: key '{}' has type {}, expected {}", name_, key, gguf_type_name(value.type), wanted);
}

Result<uint64_t> GgufFile::get_uint(std::string_view key) const {
  BZ_ASSIGN(const GgufMetadata* entry, require(key));
  if (const auto* u = std::get_if<uint64_t>(&entry->value.data)) return *u;
  if (const auto* i = std::get_if<int64_t>(&entry->value.data)) {
    if (*i < 0) return invalid_argument("{}: key '{}' is {}, expected a number >= 0", name_, key, *i);
    return static_cast<uint64_t>(*i);
  }
  return wrong_type(key, entry->value, "an integer");
}

Result<double> GgufFile::get_float(std::string_view key) const {
  BZ_ASSIGN(const GgufMetadata* entry, require(key));
  if (const auto* f = std::get_if<double>(&entry->value.data)) return *f;
  if (const auto* u = std::get_if<uint64_t>(&entry->value.data)) return static_cast<double>(*u);
  if (const auto* i = std::get_if<int64_t>(&entry->value.data)) return static_cast<double>(*i);
  return wrong_type(key, entry->value, "a number");
}

Result<bool> GgufFile::get_bool(std::string_view key) const {
  BZ_ASSIGN(const GgufMetadata* entry, require(key));
  if (const auto* b = std::get_if<bool>(&entry->value.data)) return *b;
  return wrong_type(key, entry->value, "bool");
}

Result<std::string_view> GgufFile::get_string(std::string_view key) const {
  BZ_ASSIGN(const GgufMetadata* entry, require(key));
  if (const auto* s = std::get_if<std::string_view>(&entry->value.data)) return *s;
  return wrong_type(key, entry->value, "string");
}

Result<uint64_t> GgufFile::get_uint(std::string_view key, uint64_t fallback) const {
  return has(key) ? get_uint(key) : Result<uint64_t>(fallback);
}
Result<double> GgufFile::get_float(std::string_view key, double fallback) const {
  return has(key) ? get_float(key) : Result<double>(fallback);
}
Result<bool> GgufFile::get_bool(std::string_view key, bool fallback) const {
  return has(key) ? get_bool(key) : Result<bool>(fallback);
}
Result<std::string_view> GgufFile::get_string(std::string_view key, std::string_view fallback) const {
  return has(key) ? get_string(key) : Result<std::string_view>(fallback);
}

Result<const GgufArray*> GgufFile::require_array(std::string_view key) const {
  BZ_ASSIGN(const GgufMetadata* entry, require(key));
  if (const auto* array = std::get_if<GgufArray>(&entry->value.data)) return array;
  return wrong_type(key, entry->value, "array");
}

Result<std::vector<std::string_view>> GgufFile::get_string_array(std::string_view key) const {
  BZ_ASSIGN(const GgufArray* array, require_array(key));
  if (array->element_type != GgufType::kString) {
    return invalid_argument("{}: key '{}' is an array of {}, expected of string", name_, key,
                            gguf_type_name(array->element_type));
  }
  std::vector<std::string_view> strings;
  strings.reserve(array->count);  // each took at least 8 bytes of the file, checked on opening
  const char* at = reinterpret_cast<const char*>(array->bytes.data());
  for (uint64_t i = 0; i < array->count; ++i) {
    uint64_t length = 0;
    std::memcpy(&length, at, sizeof length);
    strings.emplace_back(at + sizeof length, length);
    at += sizeof length + length;
  }
  return strings;
}

namespace {
template <class Out, class In>
std::vector<Out> convert(const GgufArray& array) {
  std::vector<Out> out(array.count);
  for (uint64_t i = 0; i < array.count; ++i) {
    In value;
    std::memcpy(&value, array.bytes.data() + i * sizeof(In), sizeof(In));
    out[i] = static_cast<Out>(value);  // NOLINT(bugprone-signed-char-misuse): a sign is a sign
  }
  return out;
}
}  // namespace

Result<std::vector<int64_t>> GgufFile::get_int_array(std::string_view key) const {
  BZ_ASSIGN(const GgufArray* array, require_array(key));
  switch (array->element_type) {
    case GgufType::kUint8:
    case GgufType::kBool: return convert<int64_t, uint8_t>(*array);
    case GgufType::kInt8: return convert<int64_t, int8_t>(*array);
    case GgufType::kUint16: return convert<int64_t, uint16_t>(*array);
    case GgufType::kInt16: return convert<int64_t, int16_t>(*array);
    case GgufType::kUint32: return convert<int64_t, uint32_t>(*array);
    case GgufType::kInt32: return convert<int64_t, int32_t>(*array);
    case GgufType::kInt64: return convert<int64_t, int64_t>(*array);
    default: break;
  }
  return invalid_argument("{}: key '{}' is an array of {}, expected of integers", name_, key,
                          gguf_type_name(array->element_type));
}

Result<std::vector<float>> GgufFile::get_float_array(std::string_view key) const {
  BZ_ASSIGN(const GgufArray* array, require_array(key));
  if (array->element_type == GgufType::kFloat32) return convert<float, float>(*array);
  if (array->element_type == GgufType::kFloat64) return convert<float, double>(*array);
  return invalid_argument("{}: key '{}' is an array of {}, expected of floats", name_, key,
                          gguf_type_name(array->element_type));
}

Result<const GgufTensor*> GgufFile::get_tensor(std::string_view name) const {
  const GgufTensor* tensor = find_tensor(name);
  if (tensor == nullptr) {
    return invalid_argument("{}: tensor '{}' is missing; the file is no complete model", name_, name);
  }
  if (!tensor->dtype) {
    const GgufTensorType* type = find_gguf_tensor_type(tensor->type_id);
    return invalid_argument("{}: tensor '{}' has type {} ({}), which is not supported; use another quantisation", name_,
                            name, type ? type->name : "unknown", tensor->type_id);
  }
  return tensor;
}

std::string printable(std::string_view text, size_t max_bytes) {
  std::string out;
  size_t at = 0;
  while (at < text.size() && at < max_bytes) {
    const Utf8Step step = utf8_step(text.substr(at));
    const auto byte = static_cast<unsigned char>(text[at]);
    if (step.kind != Utf8Kind::kWhole || byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
      at += 1;
    } else {
      out += text.substr(at, step.length);
      at += step.length;
    }
  }
  if (at < text.size()) out += "...";
  return out;
}

}  // namespace bz::formats
