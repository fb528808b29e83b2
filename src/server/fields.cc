#include "server/fields.h"

#include <cmath>

#include <nlohmann/json.hpp>

namespace bz::server {
namespace {

// The integer a JSON number stands for; 16.0 counts, 16.5 and 1e300 do not.
std::optional<int64_t> as_integer(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto u = value.get<uint64_t>();
    return u > static_cast<uint64_t>(INT64_MAX) ? std::nullopt : std::optional<int64_t>(static_cast<int64_t>(u));
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double d = value.get<double>();
  if (!(std::fabs(d) <= 9007199254740992.0) || d != std::floor(d)) return std::nullopt;
  return static_cast<int64_t>(d);
}

bool equal_enough(const Json& value, const Json& harmless) {
  // JSON writes the same number as 1 and as 1.0.
  if (value.is_number() && harmless.is_number()) return value.get<double>() == harmless.get<double>();
  return value == harmless;
}

}  // namespace

Fields::Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
  BZ_CHECK(object.is_object());
}

std::string Fields::full(std::string_view name) const { return path_ + std::string(name); }

const Json* Fields::get(std::string_view name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void Fields::fail(std::string_view name, std::string message) {
  if (status_.ok()) status_ = Status(StatusCode::kInvalidArgument, full(name) + " " + message, full(name));
}

std::optional<int64_t> Fields::integer(std::string_view name, int64_t min, int64_t max) {
  const Json* value = get(name);
  if (!value) return std::nullopt;
  const auto i = as_integer(*value);
  if (i && *i >= min && *i <= max) return i;
  fail(name, fmt::format("must be an integer from {} to {}, not {}", min, max, shown(*value)));
  return std::nullopt;
}

std::optional<uint64_t> Fields::bits(std::string_view name) {
  const Json* value = get(name);
  if (!value) return std::nullopt;
  if (value->is_number_unsigned()) return value->get<uint64_t>();
  if (const auto i = as_integer(*value)) return static_cast<uint64_t>(*i);
  fail(name, fmt::format("must be a 64-bit integer, not {}", shown(*value)));
  return std::nullopt;
}

std::optional<double> Fields::number(std::string_view name, double min, double max) {
  const Json* value = get(name);
  if (!value) return std::nullopt;
  if (value->is_number()) {
    const double d = value->get<double>();
    if (d >= min && d <= max) return d;
  }
  fail(name, fmt::format("must be a number from {} to {}, not {}", min, max, shown(*value)));
  return std::nullopt;
}

bool Fields::boolean(std::string_view name, bool otherwise) {
  const Json* value = get(name);
  if (!value) return otherwise;
  if (value->is_boolean()) return value->get<bool>();
  fail(name, fmt::format("must be true or false, not {}", shown(*value)));
  return otherwise;
}

std::string Fields::string(std::string_view name, std::string_view otherwise) {
  const Json* value = get(name);
  if (!value) return std::string(otherwise);
  if (value->is_string()) return value->get<std::string>();
  fail(name, fmt::format("must be a string, not {}", shown(*value)));
  return std::string(otherwise);
}

std::vector<int32_t> Fields::token_ids(std::string_view name, int64_t limit, size_t max_count) {
  const Json* value = get(name);
  if (!value) return {};
  auto ids = read_token_ids(*value, full(name), full(name), limit);
  if (ids.ok() && ids->size() <= max_count) return std::move(ids).value();
  if (ids.ok()) {
    fail(name, fmt::format("may hold at most {} ids, not {}", max_count, ids->size()));
  } else if (status_.ok()) {
    status_ = ids.status();
  }
  return {};
}

void Fields::only(std::string_view name, const Json& harmless) {
  const Json* value = get(name);
  if (!value || equal_enough(*value, harmless)) return;
  // An empty list or object asks for nothing.
  if (value->is_structured() && value->empty() && harmless.is_null()) return;
  if (harmless.is_null()) {
    fail(name, fmt::format("is not supported yet: leave it out (it is {})", shown(*value)));
  } else {
    fail(name, fmt::format("is only supported as {}, not {}", shown(harmless), shown(*value)));
  }
}

Result<std::vector<int32_t>> read_token_ids(const Json& array, std::string_view what, std::string_view param,
                                            int64_t limit) {
  if (!array.is_array()) {
    return invalid_field(std::string(param), "{} must be an array of token ids, not {}", what, shown(array));
  }
  std::vector<int32_t> ids;
  ids.reserve(array.size());
  for (const Json& value : array) {
    const auto id = as_integer(value);
    if (!id || *id < 0 || *id >= limit) {
      return invalid_field(std::string(param), "{}[{}] must be a token id from 0 to {}, not {}", what, ids.size(),
                           limit - 1, shown(value));
    }
    ids.push_back(static_cast<int32_t>(*id));
  }
  return ids;
}

}  // namespace bz::server
