#include "base/log.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>

namespace bz::log {
namespace {

std::atomic<Level> g_level{Level::kInfo};
std::atomic<bool> g_json{false};

const char* level_name(Level level) {
  switch (level) {
    case Level::kDebug: return "debug";
    case Level::kInfo: return "info";
    case Level::kWarn: return "warning";
    default: return "error";
  }
}

std::string json_escaped(std::string_view s) {
  std::string out;
  for (const char c : s) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (u < 0x20) {
      out += fmt::format("\\u{:04x}", u);
    } else {
      out += c;
    }
  }
  return out;
}

// A line stays one line, and leaves the terminal alone, whatever a file's name or a model's metadata holds.
std::string printable(std::string_view s) {
  std::string out;
  for (const char c : s) {
    const auto u = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (u < 0x20 || u == 0x7f) {
      out += fmt::format("\\x{:02x}", u);
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

void set_level(Level level) { g_level = level; }
void set_json(bool json) { g_json = json; }

void write(Level level, std::string_view message) {
  if (level < g_level.load(std::memory_order_relaxed)) return;
  std::string line;
  if (g_json) {
    const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    line = fmt::format("{{\"ts\":{:.3f},\"level\":\"{}\",\"msg\":\"{}\"}}\n", now, level_name(level),
                       json_escaped(message));
  } else if (level == Level::kInfo) {
    line = fmt::format("blockzero: {}\n", printable(message));
  } else {
    line = fmt::format("blockzero: {}: {}\n", level_name(level), printable(message));
  }
  std::fwrite(line.data(), 1, line.size(), stderr);  // one call: lines of several threads do not mix
}

}  // namespace bz::log
