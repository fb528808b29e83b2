#include "server/access_log.h"

#include <fcntl.h>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/log.h"
#include "server/json.h"

namespace bz::server {

std::string access_line(const AccessRecord& r, double seconds_since_1970) {
  std::string line = fmt::format("{{\"ts\":{:.3f},\"id\":", seconds_since_1970);
  append_json_string(line, r.request_id);
  line += ",\"client\":";
  append_json_string(line, r.client);
  line += ",\"method\":";
  append_json_string(line, r.method);
  line += ",\"path\":";
  append_json_string(line, r.path);
  fmt::format_to(std::back_inserter(line), ",\"status\":{},\"bytes\":{},\"ms\":{:.3f},\"cut_off\":{}", r.status,
                 r.bytes, r.seconds * 1e3, r.cut_off);
  for (const auto& [name, value] : r.notes) {
    line += ',';
    append_json_string(line, name);
    fmt::format_to(std::back_inserter(line), ":{}", value);
  }
  line += "}\n";
  return line;
}

namespace {

// Non-blocking only for the opening: it would wait for a FIFO's reader. Now that is an error.
std::FILE* open_for_append(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
  if (fd < 0) return nullptr;
  ::fcntl(fd, F_SETFL, O_APPEND);
  return ::fdopen(fd, "a");
}

// Writes lines; says once when that fails, and again if it failed anew after it went well.
class LineFile {
 public:
  LineFile(std::shared_ptr<std::FILE> file, std::string name) : file_(std::move(file)), name_(std::move(name)) {}

  void write(const std::string& line) {
    const bool written =
        std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size() && std::fflush(file_.get()) == 0;
    if (!written && !failing_) log::warn("--access-log {}: {}; lines are lost", name_, std::strerror(errno));
    failing_ = !written;
    std::clearerr(file_.get());
  }

 private:
  std::shared_ptr<std::FILE> file_;
  std::string name_;
  bool failing_ = false;
};

}  // namespace

Result<AccessLog> open_access_log(const std::string& path) {
  std::shared_ptr<std::FILE> file(stdout, [](std::FILE*) {});
  if (path != "-") {
    std::FILE* opened = open_for_append(path);
    if (opened == nullptr) return invalid_argument("--access-log {}: {}", path, std::strerror(errno));
    file = std::shared_ptr<std::FILE>(opened, [](std::FILE* f) { std::fclose(f); });
  }
  return AccessLog([lines = std::make_shared<LineFile>(file, path)](const AccessRecord& record) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    lines->write(access_line(record, std::chrono::duration<double>(now).count()));
  });
}

}  // namespace bz::server
