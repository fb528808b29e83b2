#include "formats/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace bz::formats {
namespace {

constexpr size_t kPieceBytes = 64 << 10;

Result<std::string> read_all(int fd, const std::string& path, size_t max_bytes) {
  std::string text;
  for (;;) {
    const size_t size = text.size();
    text.resize(size + std::min(kPieceBytes, max_bytes + 1 - size));
    const ssize_t n = ::read(fd, text.data() + size, text.size() - size);
    if (n < 0 && errno != EINTR) return invalid_argument("{}: cannot be read: {}", path, std::strerror(errno));
    text.resize(size + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (n == 0) return text;
    if (text.size() > max_bytes) {
      return invalid_argument("{}: has more than {} bytes; name a smaller file", path, max_bytes);
    }
  }
}

}  // namespace

Result<std::string> read_text_file(const std::string& path, size_t max_bytes) {
  // Non-blocking only for the opening: it would wait for a FIFO's writer. Reading a pipe waits for its text.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    if (errno == ENOENT) return not_found("{}: no such file; check the path", path);
    return invalid_argument("{}: cannot be opened: {}", path, std::strerror(errno));
  }
  struct stat info{};
  Result<std::string> text = invalid_argument("{}: is a folder, not a file", path);
  if (::fstat(fd, &info) != 0 || !S_ISDIR(info.st_mode)) {
    ::fcntl(fd, F_SETFL, O_RDONLY);
    text = read_all(fd, path, max_bytes);
  }
  ::close(fd);
  return text;
}

}  // namespace bz::formats
