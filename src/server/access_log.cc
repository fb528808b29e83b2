#include "server/access_log.h"

#include <cerrno>
#include <chrono>
#include <cstring>

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

Result<AccessLog> open_access_log(const std::string& path) {
  std::shared_ptr<std::FILE> file(stdout, [](std::FILE*) {});
  if (path != "-") {
    std::FILE* opened = std::fopen(path.c_str(), "ae");
    if (opened == nullptr) return invalid_argument("--access-log {}: {}", path, std::strerror(errno));
    file = std::shared_ptr<std::FILE>(opened, [](std::FILE* f) { std::fclose(f); });
  }
  return AccessLog([file](const AccessRecord& record) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const std::string line = access_line(record, std::chrono::duration<double>(now).count());
    std::fwrite(line.data(), 1, line.size(), file.get());
    std::fflush(file.get());
  });
}

}  // namespace bz::server
