// MappedFile: a whole file in memory, read-only and private, paged in on demand.
//
// The mapping lives as long as the object. A file that is truncated by somebody else while mapped is not handled:
// reading the lost part raises SIGBUS, as with every mapped file.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/status.h"

namespace bz::formats {

class MappedFile {
 public:
  MappedFile() = default;
  // kNotFound when there is no such file; kInvalidArgument for folders, empty and unreadable files.
  static Result<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace bz::formats
