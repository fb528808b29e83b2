#include "formats/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace bz::formats {

Result<MappedFile> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO would wait for a writer. It changes nothing for a regular file.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    if (errno == ENOENT) return not_found("{}: no such file; check the path", path);
    return invalid_argument("{}: cannot be opened: {}", path, std::strerror(errno));
  }
  struct stat info{};
  const bool stat_ok = ::fstat(fd, &info) == 0;
  Status bad;
  if (!stat_ok) {
    bad = invalid_argument("{}: cannot be examined: {}", path, std::strerror(errno));
  } else if (S_ISDIR(info.st_mode)) {
    bad = invalid_argument("{}: is a folder, not a file; name a .gguf file inside it", path);
  } else if (!S_ISREG(info.st_mode)) {
    bad = invalid_argument("{}: is not a regular file and cannot be mapped; copy it into one", path);
  } else if (info.st_size == 0) {
    bad = invalid_argument("{}: is empty; download it again", path);
  }
  MappedFile file;
  if (bad.ok()) {
    void* data = ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      bad = invalid_argument("{}: cannot be mapped: {}", path, std::strerror(errno));
    } else {
      file.data_ = static_cast<const std::byte*>(data);
      file.size_ = static_cast<size_t>(info.st_size);
    }
  }
  ::close(fd);
  if (!bad.ok()) return bad;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace bz::formats
