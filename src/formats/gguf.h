// GgufFile: a GGUF model file (versions 2 and 3, little endian), mapped and indexed, nothing copied.
//
// Opening checks everything that can be checked without knowing the model: counts against the bytes that are there,
// every string and array, duplicate keys and tensors, tensor shapes, types, alignment, overlap and extent. Memory used
// is at most a small multiple of the header's bytes, whatever its counts claim.
// Every error is one line: the file, the key, tensor or byte offset, the reason.
//
// Strings, arrays and tensors are views into the file: they live as long as the GgufFile (and, for parse(), as long as
// the caller's bytes). A GgufFile may be moved; the views stay valid. Immutable after opening, so any thread may read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "formats/gguf_types.h"
#include "formats/mapped_file.h"

namespace bz::formats {

class GgufFile {
 public:
  static Result<GgufFile> open(const std::string& path);
  // As open(), over bytes that the caller keeps alive; `name` stands for the file in messages.
  static Result<GgufFile> parse(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const { return name_; }
  uint32_t version() const { return version_; }
  uint32_t alignment() const { return alignment_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  uint64_t data_offset() const { return data_offset_; }
  // In the file's order.
  const std::vector<GgufMetadata>& metadata() const { return metadata_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }

  bool has(std::string_view key) const { return find(key) != nullptr; }
  const GgufMetadata* find(std::string_view key) const;        // nullptr: absent
  const GgufTensor* find_tensor(std::string_view name) const;  // nullptr: absent

  // The value of a key that must be there; an error names the file, the key and what is wrong.
  // An integer is accepted in any width and signedness that holds it, a float also as an integer.
  Result<uint64_t> get_uint(std::string_view key) const;
  Result<double> get_float(std::string_view key) const;
  Result<bool> get_bool(std::string_view key) const;
  Result<std::string_view> get_string(std::string_view key) const;
  // The fallback is for an absent key only: a value of a wrong type is still an error.
  Result<uint64_t> get_uint(std::string_view key, uint64_t fallback) const;
  Result<double> get_float(std::string_view key, double fallback) const;
  Result<bool> get_bool(std::string_view key, bool fallback) const;
  Result<std::string_view> get_string(std::string_view key, std::string_view fallback) const;

  Result<std::vector<std::string_view>> get_string_array(std::string_view key) const;
  Result<std::vector<int64_t>> get_int_array(std::string_view key) const;
  Result<std::vector<float>> get_float_array(std::string_view key) const;

  // A tensor that must be there, with a type that the engine can use.
  Result<const GgufTensor*> get_tensor(std::string_view name) const;

 private:
  friend class GgufReader;

  Result<const GgufMetadata*> require(std::string_view key) const;
  Result<const GgufArray*> require_array(std::string_view key) const;
  Status wrong_type(std::string_view key, const GgufValue& value, std::string_view wanted) const;

  std::string name_;
  MappedFile file_;
  std::span<const std::byte> bytes_;
  uint32_t version_ = 0;
  uint32_t alignment_ = 32;
  uint64_t data_offset_ = 0;
  std::vector<GgufMetadata> metadata_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, size_t> metadata_index_;
  std::unordered_map<std::string_view, size_t> tensor_index_;
};

// A string of the file made fit for one line of a message: control bytes and invalid UTF-8 escaped, length capped.
std::string printable(std::string_view text, size_t max_bytes = 64);

}  // namespace bz::formats
