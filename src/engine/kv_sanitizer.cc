#include "engine/kv_sanitizer.h"

#include <utility>

#include "base/log.h"

namespace bz::engine {

template <class T>
std::vector<T> KvSanitizer::fetch(const T* device_array, int64_t count) {
  std::vector<T> host(static_cast<size_t>(count));
  device_.copy_to_host(host.data(), device_array, host.size() * sizeof(T));
  return host;
}

void KvSanitizer::report(std::string what) {
  ++num_violations_;
  if (violations_.size() >= kMaxKept) return;
  log::error("kv-sanitize: {}", what);
  violations_.push_back(std::move(what));
}

void KvSanitizer::check_step(const StepPlan& plan, const GraphKey& key, const kv::CacheManager& cache) {
  const ops::StepView view = runner_.view(key);
  check_rows(plan, view);
  for (int32_t g = 0; g < view.num_groups; ++g) {
    check_group(plan, view, g, cache);
    if (g < cache.tables().num_tables()) check_tables(plan.cache.sequence, view.groups[g], kv::GroupId(g), cache);
  }
  if (!runner_.slabs().null_block_is_zero())
    report(fmt::format("step {}: the null block is not zero (PAD-8)", plan.cache.sequence));
  if (!runner_.slabs().canary_intact())
    report(fmt::format("step {}: something wrote past the last block", plan.cache.sequence));
}

namespace {

// Tokens of a batch row: what was planned, less the drafts that the device did not have.
int32_t query_len(const StepPlan& plan, const std::vector<int32_t>& query_start, int32_t b) {
  if (b >= static_cast<int32_t>(plan.rows.size())) return 0;
  const PlanRow& row = plan.rows[static_cast<size_t>(b)];
  if (row.num_samples <= 1) return row.query_len;
  const auto i = static_cast<size_t>(b);
  return std::clamp(query_start[i + 1] - query_start[i], 1, row.query_len);
}

}  // namespace

void KvSanitizer::check_rows(const StepPlan& plan, const ops::StepView& view) {
  const uint64_t step = plan.cache.sequence;
  const auto row_index = fetch(view.row_index, view.padded_rows);
  const auto seq_len = fetch(view.seq_len, view.padded_rows);
  const auto query_start = fetch(view.query_start, view.padded_rows + 1);
  const int32_t valid_rows = fetch(view.num_valid_rows, 1)[0].value();
  const int32_t valid_tokens = fetch(view.num_valid_tokens, 1)[0].value();
  if (valid_rows != static_cast<int32_t>(plan.rows.size()))
    report(fmt::format("step {}: {} rows count as valid, should be {}", step, valid_rows, plan.rows.size()));
  int32_t start = 0;
  for (int32_t b = 0; b < view.padded_rows; ++b) {
    const bool live = b < static_cast<int32_t>(plan.rows.size());
    const int32_t want_row = live ? plan.rows[static_cast<size_t>(b)].row.value() : 0;
    const int32_t len = query_len(plan, query_start, b);
    const int32_t missing = live ? plan.rows[static_cast<size_t>(b)].query_len - len : 0;
    const int32_t want_len = live ? plan.rows[static_cast<size_t>(b)].max_seq_len - missing : 0;
    if (row_index[b] != want_row)
      report(fmt::format("step {}: batch row {} names table row {}, should be {}", step, b, row_index[b], want_row));
    if (seq_len[b] != want_len)
      report(fmt::format("step {}: batch row {} has length {}, should be {}", step, b, seq_len[b], want_len));
    if (query_start[b] != start)
      report(fmt::format("step {}: batch row {} begins at token {}, should be {}", step, b, query_start[b], start));
    start += len;
  }
  if (valid_tokens != start)
    report(fmt::format("step {}: {} tokens count as valid, should be {}", step, valid_tokens, start));
}

// Where a token's entry must be written, from the host's tables alone; -1: nowhere. Its own arithmetic, not slot.h's.
int64_t KvSanitizer::expected_slot(const kv::CacheManager& cache, kv::GroupId group, kv::RowId row, int32_t position,
                                   int32_t seq_end) {
  const kv::GroupSpec& s = cache.config().groups[static_cast<size_t>(group.value())];
  int32_t entry = position, column = 0;
  switch (s.kind) {
    case kv::CacheKind::kState:
    case kv::CacheKind::kCross: return -1;
    case kv::CacheKind::kRing:
      if (seq_end - position > s.block_size) return -1;  // a later token of the step takes its place
      break;
    case kv::CacheKind::kCompressed:
      if (position % s.ratio != s.ratio - 1) return -1;
      entry = position / s.ratio;
      column = entry / s.block_size;
      break;
    default: {
      const int32_t run = position / s.cp_interleave;  // of consecutive tokens on one rank
      if (run % s.cp_world != s.cp_rank) return -1;
      entry = run / s.cp_world * s.cp_interleave + position % s.cp_interleave;
      column = entry / s.block_size + (s.sink_tokens + s.block_size - 1) / s.block_size;
    }
  }
  return int64_t{cache.tables().block(kv::table_of(s, group), row, column).value()} * s.block_size +
         entry % s.block_size;
}

void KvSanitizer::check_group(const StepPlan& plan, const ops::StepView& view, int32_t group,
                              const kv::CacheManager& cache) {
  const uint64_t step = plan.cache.sequence;
  const int32_t block_size = cache.config().groups[static_cast<size_t>(group)].block_size;
  const auto slots = fetch(view.groups[group].slots, view.padded_tokens);
  const auto positions = fetch(view.positions, view.padded_tokens);
  const auto query_start = fetch(view.query_start, view.padded_rows + 1);
  int32_t t = 0;
  for (size_t b = 0; b < plan.rows.size(); ++b) {
    const PlanRow& row = plan.rows[b];
    const int32_t len = query_len(plan, query_start, static_cast<int32_t>(b));
    const int32_t start = row.max_seq_len - row.query_len;
    for (int32_t i = 0; i < len; ++i, ++t) {
      const int32_t position = start + i;
      const int64_t want = expected_slot(cache, kv::GroupId(group), row.row, position, start + len);
      if (positions[t] != position)
        report(fmt::format("step {}: token {} is at position {}, should be {}", step, t, positions[t], position));
      if (want >= 0 && want < block_size)
        report(fmt::format("step {}: token {} of row {} has no block", step, t, row.row.value()));
      if (slots[t].value() != want) {
        report(fmt::format(
            "step {}: group {}: token {} of row {} writes slot {} (block {}), should be slot {} (block {})", step,
            group, t, row.row.value(), slots[t].value(), slots[t].value() / block_size, want, want / block_size));
      }
    }
  }
  for (; t < view.padded_tokens; ++t) {
    if (slots[t].value() != -1) {
      report(fmt::format("step {}: group {}: padded token {} writes slot {} (block {}), should be -1", step, group, t,
                         slots[t].value(), slots[t].value() / block_size));
    }
  }
  check_states(plan, view, group, cache);
  check_lists(plan, view, group, cache);
}

// The states of live rows are the host's; a padded row has none.
void KvSanitizer::check_states(const StepPlan& plan, const ops::StepView& view, int32_t group,
                               const kv::CacheManager& cache) {
  const bool has_states = cache.config().groups[static_cast<size_t>(group)].kind == kv::CacheKind::kState;
  const auto states = fetch(view.groups[group].states, int64_t{view.padded_rows} * view.states_per_row);
  for (int32_t b = 0; b < view.padded_rows; ++b) {
    const bool live = b < static_cast<int32_t>(plan.rows.size()) && has_states;
    for (int32_t i = 0; i < view.states_per_row; ++i) {
      const uint32_t found =
          states[static_cast<size_t>(b) * static_cast<size_t>(view.states_per_row) + static_cast<size_t>(i)].value();
      const uint32_t want =
          live ? cache.tables().block(kv::GroupId(group), plan.rows[static_cast<size_t>(b)].row, i).value() : 0;
      if (found != want)
        report(fmt::format("step {}: group {}: batch row {} has state {} in column {}, should be {}",
                           plan.cache.sequence, group, b, found, i, want));
    }
  }
}

namespace {

// The first position that a query of this group sees. Its own arithmetic, as above.
int32_t expected_begin(const kv::GroupSpec& s, int32_t position) {
  if (s.kind == kv::CacheKind::kSlidingWindow) return std::max(0, position + 1 - s.window);
  if (s.kind == kv::CacheKind::kChunkedLocal) return position - position % s.window;
  return 0;
}

}  // namespace

// What attention walks: every token of the padded step is listed once; who is live with its own row and positions,
// padding among the dead.
void KvSanitizer::check_lists(const StepPlan& plan, const ops::StepView& view, int32_t group,
                              const kv::CacheManager& cache) {
  const auto counts = fetch(view.groups[group].attention.counts, 1);
  const auto tokens =
      fetch(view.groups[group].attention.tokens, int64_t{ops::kNumAttentionClasses} * view.padded_tokens);
  const auto query_start = fetch(view.query_start, view.padded_rows + 1);
  const auto say = [&](int32_t token, std::string_view what) {
    report(fmt::format("step {}: group {}: token {} {}", plan.cache.sequence, group, token, what));
  };
  struct Found {
    int32_t times = 0, of_class = 0;
    ops::AttentionToken token{};
  };
  std::vector<Found> found(static_cast<size_t>(view.padded_tokens));
  for (int32_t c = 0; c < ops::kNumAttentionClasses; ++c) {
    for (int32_t i = 0; i < std::clamp(counts[0].of_class[c], 0, view.padded_tokens); ++i) {
      const ops::AttentionToken& token = tokens[static_cast<size_t>(int64_t{c} * view.padded_tokens + i)];
      if (token.token < 0 || token.token >= view.padded_tokens) {
        say(token.token, "is listed, which there is not");
        continue;
      }
      Found& f = found[static_cast<size_t>(token.token)];
      f = {f.times + 1, c, token};
    }
  }
  if (counts[0].shared_claims != 0 || counts[0].lone_claims != 0) {
    report(fmt::format("step {}: group {}: attention's claims are left at {} and {}, should be 0", plan.cache.sequence,
                       group, counts[0].shared_claims, counts[0].lone_claims));
  }
  const auto check = [&](int32_t t, int32_t row, int32_t position, int32_t start, int32_t len) {
    const Found& f = found[static_cast<size_t>(t)];
    if (f.times != 1) return say(t, fmt::format("is listed {} times", f.times));
    const auto listed_as = [&](ops::AttentionClass c) { return f.of_class == static_cast<int32_t>(c); };
    const bool dead = listed_as(ops::AttentionClass::kDead);
    if (dead != (row == 0)) return say(t, dead ? "is listed as dead" : "is padding and not listed as dead");
    if (dead) return;
    if (listed_as(ops::AttentionClass::kPrompt) != (len >= ops::kPromptQueries))
      say(t, fmt::format("of {} of its row is in the wrong class", len));
    const ops::Visible& sees = f.token.sees;
    if (sees.table_row != row) say(t, fmt::format("attends to table row {}, should be {}", sees.table_row, row));
    const int32_t begin = expected_begin(cache.config().groups[static_cast<size_t>(group)], position);
    if (sees.begin != begin || sees.end != position + 1 || sees.fresh != start) {
      say(t, fmt::format("sees positions {} to {}, new from {}; should be {} to {}, new from {}", sees.begin, sees.end,
                         sees.fresh, begin, position + 1, start));
    }
  };
  int32_t t = 0;
  for (size_t b = 0; b < plan.rows.size(); ++b) {
    const PlanRow& row = plan.rows[b];
    const int32_t start = row.max_seq_len - row.query_len;
    const int32_t len = query_len(plan, query_start, static_cast<int32_t>(b));
    for (int32_t i = 0; i < len; ++i, ++t) check(t, row.row.value(), start + i, start, len);
  }
  for (; t < view.padded_tokens; ++t) check(t, 0, 0, 0, 0);
}

// Device tables against the host's: every column of every row, and the width 0 of rows that nobody owns.
void KvSanitizer::check_tables(uint64_t step, const ops::GroupStep& group, kv::GroupId id,
                               const kv::CacheManager& cache) {
  if (!cache.pending_changes().empty()) return;  // the host is ahead; the next plan brings the device there
  const kv::GroupView& v = group.view;
  const auto width = fetch(v.width, v.num_rows);
  const auto first = fetch(v.first, v.num_rows);
  const auto table = fetch(v.table, int64_t{v.num_rows} * v.max_blocks_per_row);
  for (int32_t row = 0; row < v.num_rows; ++row) {
    const int32_t want = cache.tables().width(id, kv::RowId(row));
    if (width[row] != want)
      report(
          fmt::format("step {}: table row {} has width {} on the device, {} on the host", step, row, width[row], want));
    for (int32_t c = first[row]; c < std::min(width[row], want); ++c) {
      const uint32_t want_block = cache.tables().block(id, kv::RowId(row), c).value();
      const int64_t entry = int64_t{row} * v.max_blocks_per_row + c % v.max_blocks_per_row;
      const uint32_t block = table[static_cast<size_t>(entry)].value();
      if (block != want_block)
        report(fmt::format("step {}: table row {} column {} is block {} on the device, {} on the host", step, row, c,
                           block, want_block));
    }
  }
}

void KvSanitizer::poison_free_blocks(const kv::CacheManager& cache) {
  const device::SlabMemory& slabs = runner_.slabs();
  const int64_t stride = slabs.request().block_stride;
  poisoned_.resize(static_cast<size_t>(cache.num_blocks()));
  if (poison_.empty()) poison_.assign(static_cast<size_t>(stride), std::byte{0xFF});  // NaN as f16, bf16, f32 and e4m3
  for (int32_t b = 1; b < cache.num_blocks(); ++b) {
    const kv::BlockId id(static_cast<uint32_t>(b));
    const bool free = cache.pool().is_free(id) && !cache.pool().is_cached(id);  // a cached prefix keeps its bytes
    uint8_t& done = poisoned_[static_cast<size_t>(b)];
    if (free && !done) device_.copy_to_device(slabs.base() + b * stride, poison_.data(), poison_.size());
    done = free ? 1 : 0;
  }
}

}  // namespace bz::engine
