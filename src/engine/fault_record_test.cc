// Records as people edit them: whatever stands in a file, reading it ends with one line, and what is accepted fits.
#include "engine/fault_record.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace bz::engine {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr int32_t kMaxRows = 4, kMaxTokens = 64, kMaxLen = 256;

RunnerConfig config() {
  kv::LayoutRequest request;
  request.layers.push_back(kv::attention_layer(0, 2, 64, DType::kBF16));
  request.cache_bytes = 4 << 20;
  request.block_size = 16;
  RunnerConfig c;
  c.limits = {.max_tokens = kMaxTokens, .max_rows = kMaxRows};
  c.cache = kv::make_cache_config(kv::make_layout(request).value(), kMaxRows + 1, kMaxLen);
  return c;
}

// A prompt of 20 tokens in row 1, then a step of rows 1 and 2.
FaultRecord good_record() {
  FaultRecord r;
  r.failed = 2;
  r.options.model_path = "/m.gguf";
  r.options.device.name = "cuda:0";
  r.options.kv_dtype = DType::kBF16;
  r.options.kv_cache_bytes = 4 << 20;
  r.options.max_num_seqs = kMaxRows;
  r.options.max_num_batched_tokens = kMaxTokens;
  r.options.max_model_len = kMaxLen;
  r.steps.push_back({.sequence = 1, .rows = {{1, 20, 1, 20, 1, true}}, .num_tokens = 20});
  r.steps.push_back({.sequence = 2, .rows = {{1, 1, 1, 21, 1, true}, {2, 7, 1, 7, 1, false}}, .num_tokens = 8});
  const kv::GroupId group(0);
  const kv::RowId row(1);
  r.tables = {{kv::ChangeKind::kRowStart, group, row, 0, 20},
              {kv::ChangeKind::kBlock, group, row, 0, 3},
              {kv::ChangeKind::kBlock, group, row, 1, 1'000'000},  // may be what faulted
              {kv::ChangeKind::kFirst, group, row, 0, 0},
              {kv::ChangeKind::kWidth, group, row, 0, 2}};
  return r;
}

// What a user gets: "" if the record is taken.
std::string refusal(const std::string& text) {
  const auto record = parse_fault_record(text);
  const Status status = record.ok() ? check_fault_record(*record, config()) : record.status();
  if (status.ok()) return {};
  EXPECT_EQ(status.exit_code(), 2) << status.message();
  EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
  EXPECT_LT(status.message().size(), 300u) << status.message();
  return status.message();
}

std::string edited(const char* pointer, const json& value) {
  json j = json::parse(fault_record_text(good_record()));
  j[json::json_pointer(pointer)] = value;
  return j.dump();
}

TEST(FaultRecord, IsReadAsItWasWritten) {
  const std::string text = fault_record_text(good_record());
  EXPECT_EQ(refusal(text), "");
  const FaultRecord read = parse_fault_record(text).value();
  EXPECT_EQ(read.failed, 2u);
  EXPECT_EQ(read.tables, good_record().tables);
  ASSERT_EQ(read.steps.size(), 2u);
  EXPECT_EQ(read.steps[1].rows[1].query_len, 7);
  EXPECT_FALSE(read.steps[1].rows[1].greedy);
  EXPECT_EQ(read.options.max_model_len, kMaxLen);
  EXPECT_EQ(read.options.kv_dtype, DType::kBF16);
}

TEST(FaultRecord, AnEditThatContradictsTheRestNamesItsPlace) {
  const struct {
    const char* pointer;
    json value;
    const char* says;
  } cases[] = {
      {"/record", "blockzero fault 2", "record is not 'blockzero fault 1'"},
      {"/failed", -1, "failed is -1"},
      {"/options/device", "cpu", "options.device is cpu"},
      {"/options/kv_dtype", 7, "options.kv_dtype is 7; it must be an integer from 0 to 2"},
      {"/options/null_guard", 3, "options.null_guard is 3"},
      {"/options/max_num_seqs", 4.5, "options.max_num_seqs is 4.5"},
      {"/options/max_num_seqs", 4294967300u, "options.max_num_seqs is 4294967300"},
      {"/options/kv_cache_bytes", -4, "options.kv_cache_bytes is -4"},
      {"/options/model_path", 3, "options.model_path is 3"},
      {"/steps/1/sequence", 1, "steps[1].sequence does not follow"},
      {"/steps/1/num_tokens", 2000000000, "steps[1].num_tokens is 2000000000; its rows have 8"},
      {"/steps/1/rows/0/0", 0, "steps[1].rows[0].row is 0"},
      {"/steps/1/rows/0/0", 5, "steps[1].rows[0].row is 5; with these options it is at most 4"},
      {"/steps/1/rows/0/0", 2, "steps[1].rows names row 2 twice"},
      {"/steps/1/rows/0/2", 2, "steps[1].rows[0].num_logits is 2"},
      {"/steps/1/rows/0/3", kMaxLen + 1, "steps[1].rows[0].max_seq_len is 257"},
      {"/steps/1/rows/1/4", 2, "steps[1].rows[1].num_samples is 2"},
      {"/steps/1/rows/1", json::array({1, 2}), "steps[1].rows[1] is a list of 2"},
      {"/steps/0/min_tokens", kMaxTokens + 1, "steps[0].min_tokens is 65"},
      {"/steps/0/min_rows", kMaxRows + 1, "steps[0].min_rows is 5"},
      {"/tables/0/0", 4, "tables[0].kind is 4"},
      {"/tables/0/1", 1, "tables[0].group is 1"},
      {"/tables/0/2", 5, "tables[0].row is 5"},
      {"/tables/0/4", kMaxLen + 1, "tables[0].value is 257"},
      {"/tables/1/3", 16, "tables[1].column is 16"},
      {"/tables/4/4", 4294967295u, "tables[4].value is 4294967295"},
      {"/tables", nullptr, "tables is null"},
  };
  for (const auto& c : cases) EXPECT_THAT(refusal(edited(c.pointer, c.value)), HasSubstr(c.says)) << c.pointer;
}

TEST(FaultRecord, ThatIsCutOffIsRefusedWhereverThatWas) {
  const std::string text = fault_record_text(good_record());
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_THAT(refusal(text.substr(0, size)), HasSubstr("not whole JSON")) << size;
  }
  EXPECT_NE(refusal(std::string(1'000'000, '[')), "");
}

// Each value of the record, replaced by each of these and left out.
TEST(FaultRecord, AnyValueInAnyPlaceIsTakenOrRefusedInOneLine) {
  const json good = json::parse(fault_record_text(good_record()));
  const std::vector<json> values{-1,
                                 0,
                                 1,
                                 17,
                                 2147483647,
                                 2147483648u,
                                 18446744073709551615u,
                                 -9223372036854775807,
                                 1e300,
                                 0.5,
                                 true,
                                 nullptr,
                                 "",
                                 std::string(5000, 'x'),
                                 "a\nb\x01",
                                 json::array(),
                                 json::object(),
                                 json::array({json::array({1})})};
  int taken = 0, refused = 0;
  const json flat = good.flatten();
  for (const auto& [pointer, leaf] : flat.items()) {
    for (json::json_pointer at(pointer); !at.empty(); at = at.parent_pointer()) {
      for (const json& value : values) {
        json j = good;
        j[at] = value;
        ++(refusal(j.dump()).empty() ? taken : refused);
      }
      json j = good;
      json& parent = j[at.parent_pointer()];
      if (parent.is_array()) {
        parent.erase(std::stoul(at.back()));
      } else {
        parent.erase(at.back());
      }
      ++(refusal(j.dump()).empty() ? taken : refused);
    }
  }
  EXPECT_GT(taken, 50);
  EXPECT_GT(refused, 10 * taken);
}

TEST(FaultRecord, BytesThatChangeByChanceAreTakenOrRefusedInOneLine) {
  const std::string good = fault_record_text(good_record());
  std::mt19937 random(7);
  constexpr std::string_view kAlphabet = "0123456789-+.eE,:[]{}\"\\ntf \x80\xff";
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text = good;
    for (unsigned n = 1 + random() % 4; n > 0; --n) {
      const size_t at = random() % text.size();
      const char byte = kAlphabet[random() % kAlphabet.size()];
      switch (random() % 3) {
        case 0: text[at] = byte; break;
        case 1: text.insert(at, 1, byte); break;
        default: text.erase(at, 1 + random() % 9);
      }
    }
    refused += !refusal(text).empty();
  }
  EXPECT_GT(refused, 15'000);
}

}  // namespace
}  // namespace bz::engine
