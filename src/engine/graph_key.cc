#include "engine/graph_key.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "base/math.h"

namespace bz::engine {
namespace {

constexpr int32_t kMinMixedTokens = 16;

int32_t pad_size(int32_t n, int32_t limit) { return std::min(next_pow2(std::max(n, 1)), limit); }

// Powers of two to 8, then steps of 8, from 256 on of 16: a decode step is padded by less than an eighth.
int32_t decode_size(int32_t rows, int32_t limit) {
  if (rows <= 8) return pad_size(rows, limit);
  return std::min(round_up(rows, rows <= 248 ? 8 : 16), limit);
}

}  // namespace

std::string_view graph_mode_name(GraphMode mode) {
  switch (mode) {
    case GraphMode::kNone: return "none";
    case GraphMode::kPiecewise: return "piecewise";
    case GraphMode::kFull: return "full";
    case GraphMode::kAuto: return "auto";
  }
  return "?";
}

std::vector<int32_t> decode_capture_sizes(int32_t max_rows) {
  std::vector<int32_t> sizes;
  for (int32_t rows = 0; rows < max_rows;) sizes.push_back(rows = decode_size(rows + 1, max_rows));
  return sizes;
}

std::vector<int32_t> step_sizes(const GraphLimits& limits) {
  std::vector<int32_t> sizes = decode_capture_sizes(limits.max_rows);
  for (const int32_t limit : {limits.max_rows, limits.max_tokens}) {
    for (int32_t n = 0; n < limit;) sizes.push_back(n = pad_size(n + 1, limit));
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

std::string GraphKey::name() const {
  if (uniform_query_len == 1) return fmt::format("decode-{}", rows);
  return fmt::format("mixed-{}x{}{}", tokens, rows, logits > rows ? "-scored" : "");
}

GraphKey choose_graph_key(const GraphLimits& limits, const StepShape& shape) {
  const int32_t rows = std::max(shape.rows, shape.min_rows);
  const int32_t tokens = std::max(shape.tokens, shape.min_tokens);
  BZ_CHECK_LE(rows, limits.max_rows);
  BZ_CHECK_LE(tokens, limits.max_tokens);
  GraphKey key;
  key.mode = limits.mode == GraphMode::kAuto ? GraphMode::kFull : limits.mode;
  key.rows = decode_size(rows, limits.max_rows);
  if (shape.all_single_token && tokens <= key.rows) {
    key.tokens = key.rows;
    key.uniform_query_len = 1;
  } else {
    key.rows = pad_size(rows, limits.max_rows);
    key.tokens = pad_size(std::max(tokens, kMinMixedTokens), limits.max_tokens);
  }
  key.logits = shape.logits <= key.rows ? key.rows : key.tokens;
  return key;
}

}  // namespace bz::engine
