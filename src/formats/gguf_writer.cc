#include "formats/gguf_writer.h"

#include <cstring>
#include <fstream>

#include "base/math.h"

namespace bz::formats {
namespace {
template <class T>
void put(std::string& out, T value) {
  char raw[sizeof value];
  std::memcpy(raw, &value, sizeof value);
  out.append(raw, sizeof value);
}
void put_string(std::string& out, std::string_view text) {
  put<uint64_t>(out, text.size());
  out += text;
}
std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
}  // namespace

void GgufWriter::begin_entry(std::string_view key, GgufType type) {
  put_string(metadata_, key);
  put(metadata_, static_cast<uint32_t>(type));
  ++num_metadata_;
}

GgufWriter& GgufWriter::add(std::string_view key, std::string_view value) {
  begin_entry(key, GgufType::kString);
  put_string(metadata_, value);
  return *this;
}
GgufWriter& GgufWriter::add(std::string_view key, bool value) {
  begin_entry(key, GgufType::kBool);
  put<uint8_t>(metadata_, value ? 1 : 0);
  return *this;
}
GgufWriter& GgufWriter::add(std::string_view key, uint32_t value) {
  begin_entry(key, GgufType::kUint32);
  put(metadata_, value);
  return *this;
}
GgufWriter& GgufWriter::add(std::string_view key, int32_t value) {
  begin_entry(key, GgufType::kInt32);
  put(metadata_, value);
  return *this;
}
GgufWriter& GgufWriter::add(std::string_view key, uint64_t value) {
  begin_entry(key, GgufType::kUint64);
  put(metadata_, value);
  return *this;
}
GgufWriter& GgufWriter::add(std::string_view key, float value) {
  begin_entry(key, GgufType::kFloat32);
  put(metadata_, value);
  return *this;
}

GgufWriter& GgufWriter::add(std::string_view key, const std::vector<std::string>& values) {
  begin_entry(key, GgufType::kArray);
  put(metadata_, static_cast<uint32_t>(GgufType::kString));
  put<uint64_t>(metadata_, values.size());
  for (const std::string& value : values) put_string(metadata_, value);
  return *this;
}
GgufWriter& GgufWriter::add(std::string_view key, const std::vector<int32_t>& values) {
  begin_entry(key, GgufType::kArray);
  put(metadata_, static_cast<uint32_t>(GgufType::kInt32));
  put<uint64_t>(metadata_, values.size());
  for (const int32_t value : values) put(metadata_, value);
  return *this;
}
GgufWriter& GgufWriter::add(std::string_view key, const std::vector<float>& values) {
  begin_entry(key, GgufType::kArray);
  put(metadata_, static_cast<uint32_t>(GgufType::kFloat32));
  put<uint64_t>(metadata_, values.size());
  for (const float value : values) put(metadata_, value);
  return *this;
}
GgufWriter& GgufWriter::add_raw(std::string_view key, uint32_t type, std::span<const std::byte> value) {
  begin_entry(key, static_cast<GgufType>(type));
  metadata_ += as_text(value);
  return *this;
}

GgufWriter& GgufWriter::add_tensor(std::string_view name, std::initializer_list<int64_t> dims,
                                   std::span<const float> values) {
  return add_tensor(name, dims, DType::kF32, std::as_bytes(values));
}
GgufWriter& GgufWriter::add_tensor(std::string_view name, std::initializer_list<int64_t> dims, DType dtype,
                                   std::span<const std::byte> data) {
  data_.resize(round_up<size_t>(data_.size(), alignment_));
  add_tensor_info(name, std::vector<uint64_t>(dims.begin(), dims.end()), gguf_tensor_type(dtype).id, data_.size());
  data_ += as_text(data);
  return *this;
}
GgufWriter& GgufWriter::add_tensor_info(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type_id,
                                        uint64_t offset) {
  put_string(tensor_infos_, name);
  put(tensor_infos_, static_cast<uint32_t>(dims.size()));
  for (const uint64_t dim : dims) put(tensor_infos_, dim);
  put(tensor_infos_, type_id);
  put(tensor_infos_, offset);
  ++num_tensors_;
  return *this;
}

GgufWriter& GgufWriter::set_alignment(uint32_t alignment) {
  alignment_ = alignment;
  return alignment == 32 ? *this : add("general.alignment", alignment);
}

std::vector<std::byte> GgufWriter::bytes() const {
  std::string out = "GGUF";
  put<uint32_t>(out, 3);
  put(out, num_tensors_);
  put(out, num_metadata_);
  out += metadata_;
  out += tensor_infos_;
  if (!data_.empty()) out.resize(round_up<size_t>(out.size(), alignment_));
  out += data_;
  const auto raw = std::as_bytes(std::span(out));
  return {raw.begin(), raw.end()};
}

Status GgufWriter::write(const std::string& path) const {
  const std::vector<std::byte> file = bytes();
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(file.size()));
  out.close();
  if (!out) return invalid_argument("{}: cannot be written; check the folder and the free space", path);
  return ok_status();
}

}  // namespace bz::formats
