// Step: the arrays of the step path in a twin's arena. R rows, T tokens, one group.
#pragma once

#include "device/twin.h"

namespace bz::test {

struct Step {
  // samples: of a batch row in a step, 1 + drafts.
  Step(Twin& t, int32_t rows, int32_t tokens, int32_t table_rows, int32_t columns, int32_t block_size,
       int32_t samples = 1)
      : twin(t) {
    const auto r = static_cast<size_t>(rows), n = static_cast<size_t>(tokens), tr = static_cast<size_t>(table_rows);
    p.step_count = twin.take<uint64_t>(1, 4);
    for (auto& slot : p.ring) {
      slot = {
          twin.take<ops::StagedHeader>(1),     twin.take<ops::StagedRow>(r),    twin.take<int32_t>(n),
          twin.take<kv::TableChange>(1024),    twin.take<int32_t>(kMaxHistory), twin.take<ops::LogitBias>(kMaxBiases),
          twin.take<kv::BlockCopy>(kMaxCopies)};
    }
    p.row_state = twin.take<ops::RowState>(tr, {0, 0, 1, 0});
    p.drafts = twin.take<ops::RowDraft>(tr, {2, {5, 6}});
    p.history = {twin.take<int32_t>(tr * static_cast<size_t>(columns * block_size), -7), columns * block_size};
    p.num_table_rows = table_rows;
    p.tables[0] = twin.take<kv::BlockId>(tr * static_cast<size_t>(columns), kv::BlockId(0u));
    p.widths[0] = twin.take<int32_t>(tr);
    p.firsts[0] = twin.take<int32_t>(tr);
    ops::StepView& v = p.view;
    v.padded_rows = rows, v.padded_tokens = tokens, v.padded_logits = rows, v.num_groups = 1;
    v.num_valid_rows = twin.take<kv::NumValidRows>(1, kv::NumValidRows(-7));
    v.num_valid_tokens = twin.take<kv::NumValidTokens>(1, kv::NumValidTokens(-7));
    v.num_valid_logits = twin.take<ops::NumValidLogits>(1, ops::NumValidLogits(-7));
    v.token_ids = twin.take<int32_t>(n, -7);
    v.positions = twin.take<int32_t>(n, -7);
    v.token_row = twin.take<int32_t>(n, -7);
    v.row_index = twin.take<int32_t>(r, -7);
    v.query_start = twin.take<int32_t>(r + 1, -7);
    v.seq_len = twin.take<int32_t>(r, -7);
    v.logits_start = twin.take<int32_t>(r + 1, -7);
    v.logits_token = twin.take<int32_t>(std::max(r, n), -7);
    kv::GroupView& g = v.groups[0].view;
    g.table = p.tables[0], g.width = p.widths[0], g.first = p.firsts[0];
    g.num_rows = table_rows, g.max_blocks_per_row = columns, g.block_size = block_size;
    g.max_position = columns * block_size;
    v.groups[0].slots = twin.take<kv::SlotId>(n, kv::SlotId(int64_t{-7}));
    v.groups[0].first_visible = twin.take<int32_t>(r, -7);
    v.states_per_row = std::max(samples, 2), v.samples_per_row = samples;
    v.groups[0].states = twin.take<kv::StateId>(static_cast<size_t>(v.states_per_row) * r, kv::StateId(7u));
    v.groups[0].attention = {twin.take<ops::AttentionToken>(ops::kNumAttentionClasses * n, {-7, {-7, -7, -7, -7}}),
                             twin.take<ops::AttentionCounts>(1)};
    p.sampling = twin.take<ops::RowSampling>(r);
    p.sample_row = twin.take<int32_t>(r, -7);
    p.next_token = twin.take<int32_t>(r, -7);
    p.error_state = twin.take<ops::StepResultHeader>(1);
  }
  ops::StepView there(ops::StepView v) const {
    v.num_valid_rows = twin.there(v.num_valid_rows), v.num_valid_tokens = twin.there(v.num_valid_tokens);
    v.num_valid_logits = twin.there(v.num_valid_logits), v.logits_start = twin.there(v.logits_start);
    v.token_ids = twin.there(v.token_ids), v.positions = twin.there(v.positions);
    v.token_row = twin.there(v.token_row), v.row_index = twin.there(v.row_index);
    v.query_start = twin.there(v.query_start), v.seq_len = twin.there(v.seq_len);
    v.logits_token = twin.there(v.logits_token);
    ops::GroupStep& g = v.groups[0];
    g.view.table = twin.there(g.view.table), g.view.width = twin.there(g.view.width);
    g.view.first = twin.there(g.view.first), g.slots = twin.there(g.slots);
    g.first_visible = twin.there(g.first_visible), g.states = twin.there(g.states);
    g.attention = {twin.there(g.attention.tokens), twin.there(g.attention.counts)};
    return v;
  }
  // What prepare would list of tokens that a test placed itself.
  void list_tokens() const {
    const ops::StepView& v = p.view;
    const ops::AttentionLists& lists = v.groups[0].attention;
    *lists.counts = {};
    const kv::GroupView& view = v.groups[0].view;
    for (int32_t t = 0; t < v.padded_tokens; ++t) {
      const int32_t row = v.token_row[t], r = std::max(row, 0), queries = v.query_start[r + 1] - v.query_start[r];
      const ops::AttentionToken token = ops::attention_token(
          view, v.groups[0].first_visible[r], t, row < 0 ? 0 : v.row_index[r], v.positions[t], v.seq_len[r] - queries);
      const auto c = static_cast<int32_t>(ops::attention_class(token, queries));
      lists.tokens[c * v.padded_tokens + lists.counts->of_class[c]++] = token;
    }
  }
  ops::StagedSlot there(const ops::StagedSlot& s) const {
    return {twin.there(s.header),  twin.there(s.rows),   twin.there(s.tokens), twin.there(s.changes),
            twin.there(s.history), twin.there(s.biases), twin.there(s.copies)};
  }
  ops::TokenHistory there(const ops::TokenHistory& h) const { return {twin.there(h.tokens), h.stride}; }
  ops::PrepareParams there() const {
    ops::PrepareParams d = p;
    for (auto& s : d.ring) s = there(s);
    d.history = there(p.history), d.next_token = twin.there(p.next_token);
    d.step_count = twin.there(p.step_count), d.row_state = twin.there(p.row_state);
    d.drafts = twin.there(p.drafts);
    d.tables[0] = twin.there(p.tables[0]), d.widths[0] = twin.there(p.widths[0]), d.firsts[0] = twin.there(p.firsts[0]);
    d.view = there(p.view), d.sampling = twin.there(p.sampling), d.sample_row = twin.there(p.sample_row);
    d.error_state = twin.there(p.error_state);
    return d;
  }
  template <class T>
  static T* writable(const T* t) {
    return const_cast<T*>(t);
  }

  static constexpr size_t kMaxHistory = 4096, kMaxBiases = 64, kMaxCopies = 16;
  Twin& twin;
  ops::PrepareParams p{};
};

}  // namespace bz::test
