// One-line log messages to stderr. Standard output belongs to answers.
#pragma once

#include <string_view>

#include <fmt/format.h>

namespace bz::log {

enum class Level { kDebug, kInfo, kWarn, kError, kOff };

// Messages below `level` are dropped. Default: kInfo.
void set_level(Level level);
// Every line becomes one JSON object {"ts":..,"level":..,"msg":..} (blockzero serve --log-json).
void set_json(bool json);
void write(Level level, std::string_view message);

template <class... Args>
void debug(fmt::format_string<Args...> f, Args&&... args) {
  write(Level::kDebug, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> f, Args&&... args) {
  write(Level::kInfo, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void warn(fmt::format_string<Args...> f, Args&&... args) {
  write(Level::kWarn, fmt::format(f, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> f, Args&&... args) {
  write(Level::kError, fmt::format(f, std::forward<Args>(args)...));
}

}  // namespace bz::log
