// GraphKey: which recorded graph a step runs. A pure function of the plan's sizes: what is padded, and to what.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bz::engine {

enum class GraphMode : int32_t {
  kNone,       // ops are enqueued one by one
  kPiecewise,  // recorded in pieces; attention is enqueued between them
  kFull,       // the whole forward is one recorded graph
  kAuto,       // of limits alone: full; a mixed size is recorded once it has come up twice (GraphRunner)
};
std::string_view graph_mode_name(GraphMode mode);

// Sizes are padded ones. uniform_query_len: every live row has this many tokens (1: pure decode); 0: they differ.
struct GraphKey {
  GraphMode mode = GraphMode::kNone;  // never kAuto
  int32_t tokens = 0;
  int32_t rows = 0;
  int32_t uniform_query_len = 0;
  int32_t logits = 0;  // rows of logits: as many as batch rows, or (scoring) as tokens

  auto operator<=>(const GraphKey&) const = default;
  // "decode-8" or "mixed-64x2": the label of metrics and traces.
  std::string name() const;
};

struct GraphLimits {
  GraphMode mode = GraphMode::kFull;
  int32_t max_tokens = 0;  // most tokens of a step
  int32_t max_rows = 0;    // most batch rows of a step
};

// The sizes a step asks for. min_*: pad at least this far (data-parallel ranks that agreed on a size; tests).
struct StepShape {
  int32_t tokens = 0;
  int32_t rows = 0;
  bool all_single_token = true;  // every row has exactly one token; true of an empty step
  int32_t logits = 0;            // rows of logits wanted
  int32_t min_tokens = 0;
  int32_t min_rows = 0;
};

// Rows of the decode steps that are recorded, ascending: 1, 2, 4, 8 .. 248 step 8, 256 .. step 16, max_rows.
std::vector<int32_t> decode_capture_sizes(int32_t max_rows);

// Every number of tokens, and of logits rows, that the steps of these limits can have; ascending.
std::vector<int32_t> step_sizes(const GraphLimits& limits);

// The smallest size that holds the step: decode steps (tokens == rows) one of decode_capture_sizes, mixed ones powers
// of two. REQUIRES: the shape is within the limits.
GraphKey choose_graph_key(const GraphLimits& limits, const StepShape& shape);

}  // namespace bz::engine
