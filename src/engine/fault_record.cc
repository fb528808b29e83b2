#include "engine/fault_record.h"

#include <algorithm>
#include <filesystem>
#include <limits>

#include <nlohmann/json.hpp>

namespace bz::engine {
namespace {

using nlohmann::json;

constexpr std::string_view kVersion = "blockzero fault 1";

json to_json(const LoadOptions& o) {
  return {{"model_path", std::filesystem::absolute(o.model_path).string()},
          {"random_weights", o.random_weights},
          {"device", o.device.name},
          {"null_guard", static_cast<int>(o.null_guard)},
          {"kv_dtype", static_cast<int>(*o.kv_dtype)},
          {"kv_cache_bytes", o.kv_cache_bytes},
          {"block_size", o.block_size},
          {"max_num_seqs", o.max_num_seqs},
          {"max_num_batched_tokens", o.max_num_batched_tokens},
          {"max_model_len", o.max_model_len},
          {"num_draft_tokens", o.num_draft_tokens},
          {"batch_invariant", o.batch_invariant}};
}

json to_json(const RecordedStep& step) {
  json rows = json::array();
  for (const RecordedRow& r : step.rows) {
    rows.push_back({r.row, r.query_len, r.num_logits, r.max_seq_len, r.num_samples, r.greedy});
  }
  return {{"sequence", step.sequence}, {"graph", step.key.name()},      {"min_tokens", step.key.tokens},
          {"min_rows", step.key.rows}, {"num_tokens", step.num_tokens}, {"rows", rows}};
}

// Reads values and remembers the first that is wrong, by its place: "steps[0].rows[1].query_len". The library's own
// conversions would cut a large number to size without a word.
class Reader {
 public:
  const Status& status() const { return status_; }

  const json& at(const json& in, const std::string& where, const char* key) {
    static const json none;
    if (in.is_object() && in.contains(key)) return in[key];
    fail("{} is missing", place(where, key));
    return none;
  }
  template <class T>
  T integer(const json& v, const std::string& where, T low, T high = std::numeric_limits<T>::max()) {
    if (v.is_number_unsigned() && v.get<uint64_t>() <= static_cast<uint64_t>(high)) {
      if (const T value = v.get<T>(); value >= low) return value;
    }
    fail("{} is {}; it must be an integer from {} to {}", where, shown(v), low, high);
    return low;
  }
  template <class T>
  T field(const json& in, const std::string& where, const char* key, T low, T high = std::numeric_limits<T>::max()) {
    return integer<T>(at(in, where, key), place(where, key), low, high);
  }
  bool boolean(const json& v, const std::string& where) {
    if (!v.is_boolean()) fail("{} is {}; it must be true or false", where, shown(v));
    return v.is_boolean() && v.get<bool>();
  }
  std::string text(const json& v, const std::string& where) {
    if (!v.is_string()) fail("{} is {}; it must be a text", where, shown(v));
    return v.is_string() ? v.get<std::string>() : std::string();
  }
  // An array of `size` values, or of any number of them.
  bool array(const json& v, const std::string& where, size_t size = SIZE_MAX) {
    const bool right = v.is_array() && (size == SIZE_MAX || v.size() == size);
    if (!right)
      fail("{} is {}; it must be a list{}", where, shown(v), size == SIZE_MAX ? "" : fmt::format(" of {}", size));
    return right;
  }

  template <class... Args>
  void fail(fmt::format_string<Args...> f, Args&&... args) {
    if (status_.ok()) status_ = invalid_argument("{}", fmt::format(f, std::forward<Args>(args)...));
  }
  static std::string place(const std::string& where, const char* key) {
    return where.empty() ? key : fmt::format("{}.{}", where, key);
  }

 private:
  static std::string shown(const json& v) {
    if (v.is_array()) return fmt::format("a list of {}", v.size());
    if (v.is_object()) return "an object";
    return v.dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 40);
  }
  Status status_;
};

// Ranges that depend on the model are for its loading to check.
LoadOptions read_options(Reader& in, const json& j) {
  const std::string where = "options";
  LoadOptions o;
  o.model_path = in.text(in.at(j, where, "model_path"), "options.model_path");
  o.random_weights = in.boolean(in.at(j, where, "random_weights"), "options.random_weights");
  o.device.name = in.text(in.at(j, where, "device"), "options.device");
  // On the CPU a table that points out of the cache would write over this process; its faults need no record.
  if (o.device.name == "cpu") in.fail("options.device is cpu; records are of a GPU's faults");
  const int guards = static_cast<int>(device::NullGuard::kHard);
  o.null_guard = static_cast<device::NullGuard>(in.field<int>(j, where, "null_guard", 0, guards));
  const int dtypes = static_cast<int>(DType::kBF16);  // f32, f16, bf16
  o.kv_dtype = static_cast<DType>(in.field<int>(j, where, "kv_dtype", 0, dtypes));
  o.kv_cache_bytes = in.field<int64_t>(j, where, "kv_cache_bytes", 1);
  o.block_size = in.field<int32_t>(j, where, "block_size", 0);
  o.max_num_seqs = in.field<int32_t>(j, where, "max_num_seqs", 1);
  o.max_num_batched_tokens = in.field<int32_t>(j, where, "max_num_batched_tokens", 1);
  o.max_model_len = in.field<int32_t>(j, where, "max_model_len", 1);
  o.num_draft_tokens = in.field<int32_t>(j, where, "num_draft_tokens", 0);
  o.batch_invariant = in.boolean(in.at(j, where, "batch_invariant"), "options.batch_invariant");
  o.graphs = GraphMode::kNone;  // op by op
  o.record_faults = false;
  return o;
}

RecordedRow read_row(Reader& in, const json& j, const std::string& where) {
  if (!in.array(j, where, 6)) return {};
  RecordedRow r{};
  r.row = in.integer<int32_t>(j[0], where + ".row", 1);
  r.query_len = in.integer<int32_t>(j[1], where + ".query_len", 1);
  r.num_logits = in.integer<int32_t>(j[2], where + ".num_logits", 0, r.query_len);
  r.max_seq_len = in.integer<int32_t>(j[3], where + ".max_seq_len", r.query_len);
  r.num_samples = in.integer<int32_t>(j[4], where + ".num_samples", 0, r.num_logits);
  r.greedy = in.boolean(j[5], where + ".greedy");
  return r;
}

RecordedStep read_step(Reader& in, const json& j, const std::string& where) {
  RecordedStep step;
  step.sequence = in.field<uint64_t>(j, where, "sequence", 1);
  step.key.tokens = in.field<int32_t>(j, where, "min_tokens", 0);
  step.key.rows = in.field<int32_t>(j, where, "min_rows", 0);
  const json& rows = in.at(j, where, "rows");
  if (!in.array(rows, where + ".rows")) return step;
  int64_t num_tokens = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    step.rows.push_back(read_row(in, rows[i], fmt::format("{}.rows[{}]", where, i)));
    num_tokens += step.rows.back().query_len;
  }
  step.num_tokens = in.field<int32_t>(j, where, "num_tokens", 0);
  if (step.num_tokens != num_tokens)
    in.fail("{}.num_tokens is {}; its rows have {}", where, step.num_tokens, num_tokens);
  return step;
}

kv::TableChange read_change(Reader& in, const json& j, const std::string& where) {
  if (!in.array(j, where, 5)) return {};
  const auto kinds = static_cast<uint32_t>(kv::ChangeKind::kRowStart);
  return {static_cast<kv::ChangeKind>(in.integer<uint32_t>(j[0], where + ".kind", 0, kinds)),
          kv::GroupId(in.integer<int32_t>(j[1], where + ".group", 0)),
          kv::RowId(in.integer<int32_t>(j[2], where + ".row", 1)), in.integer<int32_t>(j[3], where + ".column", 0),
          in.integer<uint32_t>(j[4], where + ".value", 0)};
}

Status at_most(int64_t value, int64_t most, const std::string& what) {
  if (value <= most) return ok_status();
  return invalid_argument("{} is {}; with these options it is at most {}", what, value, most);
}

Status check_step(const RecordedStep& step, const RunnerConfig& c, const std::string& where) {
  BZ_TRY(at_most(static_cast<int64_t>(step.rows.size()), c.limits.max_rows, where + ": the number of rows"));
  BZ_TRY(at_most(step.num_tokens, c.limits.max_tokens, where + ".num_tokens"));
  BZ_TRY(at_most(step.key.rows, c.limits.max_rows, where + ".min_rows"));
  BZ_TRY(at_most(step.key.tokens, c.limits.max_tokens, where + ".min_tokens"));
  std::vector<int32_t> seen;
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const RecordedRow& r = step.rows[i];
    const std::string row = fmt::format("{}.rows[{}]", where, i);
    BZ_TRY(at_most(r.row, c.cache.max_rows - 1, row + ".row"));
    BZ_TRY(at_most(r.max_seq_len, c.cache.max_seq_len, row + ".max_seq_len"));
    BZ_TRY(at_most(r.num_samples, 1 + c.cache.num_spec, row + ".num_samples"));
    seen.push_back(r.row);
  }
  std::sort(seen.begin(), seen.end());
  const auto twice = std::adjacent_find(seen.begin(), seen.end());
  if (twice != seen.end()) return invalid_argument("{}.rows names row {} twice", where, *twice);
  return ok_status();
}

Status check_change(const kv::TableChange& c, const RunnerConfig& config, const std::vector<kv::TableShape>& owners,
                    const std::string& where) {
  BZ_TRY(at_most(c.group.value(), static_cast<int64_t>(owners.size()) - 1, where + ".group"));
  BZ_TRY(at_most(c.row.value(), config.cache.max_rows - 1, where + ".row"));
  const kv::TableShape& shape = owners[static_cast<size_t>(c.group.value())];
  switch (c.kind) {
    case kv::ChangeKind::kBlock: return at_most(c.column, shape.max_columns - 1, where + ".column");
    // Columns of a window count on; there are never more than positions and sinks.
    case kv::ChangeKind::kWidth:
    case kv::ChangeKind::kFirst:
      return at_most(c.value, std::max(shape.max_columns, shape.max_position), where + ".value");
    case kv::ChangeKind::kRowStart: return at_most(c.value, config.cache.max_seq_len, where + ".value");
  }
  return ok_status();
}

}  // namespace

std::string fault_record_text(const FaultRecord& record) {
  json steps = json::array(), tables = json::array();
  for (const RecordedStep& step : record.steps) steps.push_back(to_json(step));
  for (const kv::TableChange& c : record.tables) {
    tables.push_back({static_cast<uint32_t>(c.kind), c.group.value(), c.row.value(), c.column, c.value});
  }
  const json all{{"record", kVersion},
                 {"failed", record.failed},
                 {"options", to_json(record.options)},
                 {"steps", steps},
                 {"tables", tables}};
  return all.dump();
}

Result<FaultRecord> parse_fault_record(std::string_view text) {
  const json j = json::parse(text, nullptr, false);
  if (j.is_discarded()) return invalid_argument("it is not whole JSON");
  Reader in;
  const json& version = in.at(j, "", "record");
  BZ_TRY(in.status());
  if (version != kVersion) return invalid_argument("record is not '{}', which this version reads", kVersion);
  FaultRecord record;
  record.failed = in.field<uint64_t>(j, "", "failed", 1);
  record.options = read_options(in, in.at(j, "", "options"));
  const json& steps = in.at(j, "", "steps");
  if (in.array(steps, "steps")) {
    for (size_t i = 0; i < steps.size() && in.status().ok(); ++i) {
      const std::string where = fmt::format("steps[{}]", i);
      const RecordedStep step = read_step(in, steps[i], where);
      if (i > 0 && step.sequence <= record.steps.back().sequence)
        in.fail("{}.sequence does not follow the one before", where);
      record.steps.push_back(step);
    }
  }
  const json& tables = in.at(j, "", "tables");
  if (in.array(tables, "tables")) {
    for (size_t i = 0; i < tables.size() && in.status().ok(); ++i) {
      record.tables.push_back(read_change(in, tables[i], fmt::format("tables[{}]", i)));
    }
  }
  BZ_TRY(in.status());
  return record;
}

Status check_fault_record(const FaultRecord& record, const RunnerConfig& config) {
  std::vector<kv::TableShape> owners = kv::table_shapes(config.cache);
  std::erase_if(owners, [](const kv::TableShape& shape) { return shape.spec.table_of != kv::kOwnTable; });
  for (size_t i = 0; i < record.steps.size(); ++i) {
    BZ_TRY(check_step(record.steps[i], config, fmt::format("steps[{}]", i)));
  }
  for (size_t i = 0; i < record.tables.size(); ++i) {
    BZ_TRY(check_change(record.tables[i], config, owners, fmt::format("tables[{}]", i)));
  }
  return ok_status();
}

}  // namespace bz::engine
