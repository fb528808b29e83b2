// GgufReader: fills a GgufFile from its bytes. Internal to formats/; use GgufFile.
//
// The bytes may come from anyone, so every count is held against the bytes that remain before anything is allocated
// or multiplied, and no field is read before it is known to be there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "formats/gguf.h"

namespace bz::formats {

class GgufReader {
 public:
  // REQUIRES: file.bytes_ and file.name_ are set.
  explicit GgufReader(GgufFile& file) : file_(file), bytes_(file.bytes_) {}
  Status read();

 private:
  Status read_header(uint64_t& num_tensors, uint64_t& num_metadata);
  Status read_metadata(uint64_t count);
  Status read_value(std::string_view key, GgufType type, GgufValue& value);
  Status read_array(std::string_view key, int depth, GgufArray& array);
  Status skip_elements(std::string_view key, int depth, const GgufArray& array);
  Status read_alignment();
  Status read_tensor_infos(uint64_t count);
  Status read_tensor_info(GgufTensor& tensor);
  Status size_tensor(GgufTensor& tensor);
  Status place_tensors();

  uint64_t remaining() const { return bytes_.size() - at_; }
  template <class T>
  Status read_number(std::string_view what, T& out);
  Status read_string(std::string_view what, uint64_t max_bytes, std::string_view& out);
  Status truncated(std::string_view what) const;

  GgufFile& file_;
  std::span<const std::byte> bytes_;
  uint64_t at_ = 0;
};

}  // namespace bz::formats
