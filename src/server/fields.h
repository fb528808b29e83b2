// Fields: typed, checked reads of a JSON object's members. The first bad one is kept and every later read answers its
// default, so that a parser reads as a list of fields and asks for status() once.
//
// A member that is absent or null has its default. Members never asked for are ignored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/json.h"

namespace bz::server {

class Fields {
 public:
  // REQUIRES: `object` is an object and outlives this. `path` stands before names in errors: "stream_options."
  explicit Fields(const Json& object, std::string path = {});

  const Status& status() const { return status_; }
  // Null if absent or null.
  const Json* get(std::string_view name) const;

  std::optional<int64_t> integer(std::string_view name, int64_t min, int64_t max);
  // Any 64-bit integer, signed or not, as its bits.
  std::optional<uint64_t> bits(std::string_view name);
  std::optional<double> number(std::string_view name, double min, double max);
  bool boolean(std::string_view name, bool otherwise);
  std::string string(std::string_view name, std::string_view otherwise);
  // An array of integers in [0, limit).
  std::vector<int32_t> token_ids(std::string_view name, int64_t limit, size_t max_count);

  // Refuses a field that is not supported, unless it has the value that changes nothing.
  void only(std::string_view name, const Json& harmless);
  void fail(std::string_view name, std::string message);

 private:
  std::string full(std::string_view name) const;

  const Json& object_;
  std::string path_;
  Status status_;
};

// A token-id array; `what` names it in errors ("prompt[2]").
Result<std::vector<int32_t>> read_token_ids(const Json& array, std::string_view what, std::string_view param,
                                            int64_t limit);

}  // namespace bz::server
