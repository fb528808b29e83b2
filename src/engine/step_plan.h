// StepPlan: everything the host decides about one step, as an immutable value. Real, padded, dummy, change, warm-up and
// idle steps differ in their StepPlan only (docs/architecture.md).
//
//   dummy step    no rows: every batch row names the null row
//   change plan   table changes and no rows: what did not fit beside a step (PAD-10)
#pragma once

#include <cstdint>
#include <vector>

#include "engine/graph_key.h"
#include "engine/request.h"
#include "kv/cache_plan.h"
#include "ops/op_table.h"
#include "ops/step_state.h"

namespace bz::engine {

struct PlanRow {
  RequestId request;  // whose result it is: for the host alone
  kv::RowId row;
  int32_t query_len = 0;    // tokens of the row in this step, consecutive in StepPlan::tokens
  int32_t num_logits = 0;   // of its last tokens, whose logits are wanted; at least num_samples
  int32_t num_samples = 0;  // of its last tokens, after which to sample; above 1: all but the first of them are drafts
  int32_t max_seq_len = 0;  // upper bound of the row's length after this step: what blocks are reserved for
  int32_t history_len = 0;  // the row begins with this many ids of StepPlan::history, which no step of its own computes
  int32_t next_token = 0;   // the prompt's token after the row's last one, if it does not sample
  ops::RowSampling sampling = {};
};

struct StepPlan {
  kv::CachePlan cache;  // sequence number and table changes
  std::vector<PlanRow> rows;
  std::vector<int32_t> tokens;         // ids, ops::kTokenFromRowState or ops::kTokenFromDraft
  std::vector<int32_t> history;        // ids of the rows' history_len, row after row
  std::vector<ops::LogitBias> biases;  // as the rows' sampling.adjust says
  int32_t min_tokens = 0;              // pad at least this far
  int32_t min_rows = 0;

  StepShape shape() const;
  ops::SamplerClass sampler_class() const;
  // Keeps the capacity: steady steps allocate nothing (ENG-3).
  void clear();
};

}  // namespace bz::engine
