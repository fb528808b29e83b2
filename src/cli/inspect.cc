#include "cli/inspect.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <vector>

#include <nlohmann/json.hpp>

namespace bz::cli {
namespace {

using formats::GgufArray;
using formats::GgufFile;
using formats::GgufTensor;
using formats::GgufType;
using formats::GgufValue;
using formats::printable;
using nlohmann::json;

constexpr uint64_t kShownElements = 6;
constexpr size_t kShownTextBytes = 96;

std::string type_name(const GgufValue& value) {
  const auto* array = std::get_if<GgufArray>(&value.data);
  if (array == nullptr) return std::string(gguf_type_name(value.type));
  return fmt::format("{}[{}]", gguf_type_name(array->element_type), array->count);
}

template <class T>
T element(const GgufArray& array, uint64_t index) {
  T value;
  std::memcpy(&value, array.bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

json scalar_element(const GgufArray& array, uint64_t i) {
  switch (array.element_type) {
    case GgufType::kUint8: return element<uint8_t>(array, i);
    case GgufType::kInt8: return element<int8_t>(array, i);
    case GgufType::kUint16: return element<uint16_t>(array, i);
    case GgufType::kInt16: return element<int16_t>(array, i);
    case GgufType::kUint32: return element<uint32_t>(array, i);
    case GgufType::kInt32: return element<int32_t>(array, i);
    case GgufType::kFloat32: return element<float>(array, i);
    case GgufType::kBool: return element<uint8_t>(array, i) != 0;
    case GgufType::kUint64: return element<uint64_t>(array, i);
    case GgufType::kInt64: return element<int64_t>(array, i);
    case GgufType::kFloat64: return element<double>(array, i);
    case GgufType::kString:
    case GgufType::kArray: break;
  }
  return nullptr;
}

// The first elements; an array of arrays shows none.
json first_elements(const GgufArray& array) {
  json shown = json::array();
  const char* at = reinterpret_cast<const char*>(array.bytes.data());
  for (uint64_t i = 0; i < std::min(array.count, kShownElements); ++i) {
    if (array.element_type == GgufType::kArray) break;
    if (array.element_type != GgufType::kString) {
      shown.push_back(scalar_element(array, i));
      continue;
    }
    uint64_t length = 0;
    std::memcpy(&length, at, sizeof length);
    shown.push_back(printable({at + sizeof length, length}, kShownTextBytes));
    at += sizeof length + length;
  }
  return shown;
}

json scalar(const GgufValue& value) {
  if (const auto* u = std::get_if<uint64_t>(&value.data)) return *u;
  if (const auto* i = std::get_if<int64_t>(&value.data)) return *i;
  if (const auto* f = std::get_if<double>(&value.data)) return *f;
  if (const auto* b = std::get_if<bool>(&value.data)) return *b;
  return std::string(std::get<std::string_view>(value.data));
}

std::string value_text(const GgufValue& value) {
  if (const auto* array = std::get_if<GgufArray>(&value.data)) {
    std::string text = first_elements(*array).dump();
    if (array->count > kShownElements && text.size() > 1) text.insert(text.size() - 1, ",...");
    return text;
  }
  if (const auto* string = std::get_if<std::string_view>(&value.data)) return printable(*string, kShownTextBytes);
  if (value.type == GgufType::kFloat32) return fmt::format("{}", static_cast<float>(std::get<double>(value.data)));
  return scalar(value).dump();
}

std::string tensor_type(uint32_t id) {
  const formats::GgufTensorType* type = formats::find_gguf_tensor_type(id);
  if (type == nullptr) return fmt::format("unknown({})", id);
  return std::string(type->name) + (type->dtype ? "" : "*");
}

std::vector<int64_t> shape_of(const GgufTensor& tensor) {
  return {tensor.dims.begin(), tensor.dims.begin() + tensor.num_dims};
}

struct Total {
  int64_t tensors = 0;
  int64_t elements = 0;
  int64_t bytes = 0;
};
std::map<std::string, Total> totals_by_type(const GgufFile& file) {
  std::map<std::string, Total> totals;
  for (const GgufTensor& tensor : file.tensors()) {
    Total& total = totals[tensor_type(tensor.type_id)];
    ++total.tensors;
    total.elements += tensor.num_elements();
    total.bytes += tensor.num_bytes;
  }
  return totals;
}

std::string architecture_of(const GgufFile& file) {
  const auto architecture = file.get_string("general.architecture");
  return architecture.ok() ? printable(*architecture) : "unknown";
}

}  // namespace

std::string inspect_text(const GgufFile& file) {
  std::string out =
      fmt::format("{}\n  GGUF version {}, architecture {}, {} bytes, alignment {}, data from byte {}\n", file.name(),
                  file.version(), architecture_of(file), file.bytes().size(), file.alignment(), file.data_offset());
  out += fmt::format("\nmetadata ({})\n", file.metadata().size());
  for (const formats::GgufMetadata& entry : file.metadata()) {
    out +=
        fmt::format("  {:<44} {:<14} {}\n", printable(entry.key, 200), type_name(entry.value), value_text(entry.value));
  }
  out += fmt::format("\ntensors ({}), fastest dimension first\n", file.tensors().size());
  for (const GgufTensor& tensor : file.tensors()) {
    out += fmt::format("  {:<36} {:<8} {:<20} {:>14} bytes\n", printable(tensor.name, 200), tensor_type(tensor.type_id),
                       fmt::format("[{}]", fmt::join(shape_of(tensor), ", ")), tensor.num_bytes);
  }
  out += "\ntotals by type\n";
  bool has_unsupported = false;
  for (const auto& [type, total] : totals_by_type(file)) {
    out += fmt::format("  {:<8} {:>6} tensors {:>16} elements {:>16} bytes\n", type, total.tensors, total.elements,
                       total.bytes);
    has_unsupported |= type.ends_with('*') || type.starts_with("unknown");
  }
  if (has_unsupported) out += "  types with * or unknown cannot be computed with\n";
  return out;
}

std::string inspect_json(const GgufFile& file) {
  json metadata = json::object();
  for (const formats::GgufMetadata& entry : file.metadata()) {
    json shown = {{"type", type_name(entry.value)}};
    if (const auto* array = std::get_if<GgufArray>(&entry.value.data)) {
      shown["count"] = array->count;
      shown["first"] = first_elements(*array);
    } else {
      shown["value"] = scalar(entry.value);
    }
    metadata[std::string(entry.key)] = std::move(shown);
  }
  json tensors = json::array();
  for (const GgufTensor& tensor : file.tensors()) {
    const formats::GgufTensorType* type = formats::find_gguf_tensor_type(tensor.type_id);
    tensors.push_back({{"name", std::string(tensor.name)},
                       {"type", type != nullptr ? std::string(type->name) : "unknown"},
                       {"type_id", tensor.type_id},
                       {"supported", tensor.dtype.has_value()},
                       {"shape", shape_of(tensor)},
                       {"offset", tensor.offset},
                       {"bytes", tensor.num_bytes}});
  }
  json totals = json::object();
  for (const auto& [type, total] : totals_by_type(file)) {
    totals[type] = {{"tensors", total.tensors}, {"elements", total.elements}, {"bytes", total.bytes}};
  }
  const json all = {{"file", file.name()},
                    {"bytes", file.bytes().size()},
                    {"version", file.version()},
                    {"architecture", architecture_of(file)},
                    {"alignment", file.alignment()},
                    {"data_offset", file.data_offset()},
                    {"metadata", std::move(metadata)},
                    {"tensors", std::move(tensors)},
                    {"totals", std::move(totals)}};
  // Strings of the file need not be UTF-8.
  return all.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

void add_inspect_options(CLI::App& command, InspectOptions& options) {
  command.add_option("file", options.path, "a .gguf file")->required();
  command.add_flag("--json", options.json, "print JSON");
}

Status inspect(const InspectOptions& options) {
  BZ_ASSIGN(const GgufFile file, GgufFile::open(options.path));
  const std::string text = options.json ? inspect_json(file) : inspect_text(file);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return ok_status();
}

}  // namespace bz::cli
