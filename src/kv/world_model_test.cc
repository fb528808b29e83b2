// What World does (cache_world.h).
#include "kv/cache_world.h"

#include <set>

namespace bz::kv {

RowId World::pick(uint32_t a) const {
  std::vector<int32_t> live;
  for (int32_t r = 1; r < static_cast<int32_t>(rows_.size()); ++r) {
    if (rows_[static_cast<size_t>(r)].serial != 0) live.push_back(r);
  }
  return live.empty() ? kNullRow : RowId(live[a % live.size()]);
}

bool World::busy(RowId row) const {
  for (size_t i = 0; i < nets_.size(); ++i) {
    const Transfer& t = m_.transfer(TransferId(static_cast<int32_t>(i)));
    if (t.row == row && t.state == TransferState::kRunning) return true;
  }
  return false;
}

// Two families; prompts of a family share a prefix, some end otherwise.
std::vector<int32_t> World::prompt(uint32_t a, int32_t length) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < length; ++i) tokens.push_back(static_cast<int32_t>(a % 2) * 1000 + i);
  if (a % 3 == 2) tokens.back() += 500;
  return tokens;
}

bool World::admit(uint32_t a, uint32_t b) {
  const std::vector<int32_t> tokens = prompt(a, 1 + static_cast<int32_t>(b % static_cast<uint32_t>(max_prompt_)));
  PrefixHit hit;
  m_.find_prefix({tokens}, hit);
  if (!m_.can_admit(hit, 1)) return false;
  Request r;
  r.serial = next_serial_++;
  r.encoder_tokens = m_.config().max_encoder_tokens;
  r.tokens.assign(tokens.begin(), tokens.begin() + hit.num_tokens);
  const RowId row = m_.admit(hit, r.encoder_tokens);
  if (rows_.at(static_cast<size_t>(row.value())).serial != 0) fail("admit gave a row that is in use");
  if (!m_.can_append(row, 1)) fail("can_admit said yes, can_append says no");
  rows_[static_cast<size_t>(row.value())] = r;
  return true;
}

bool World::verify(RowId row, Request& r, uint32_t b) {
  const int32_t k = m_.config().num_spec;
  if (k == 0 || r.tokens.empty() || m_.in_next_plan(row) || !m_.can_append(row, 1 + k)) return false;
  m_.append(row, 1 + k);
  for (int32_t i = 0; i <= k; ++i) r.tokens.push_back(5000 + static_cast<int32_t>(b % 5) + i);
  r.accepted = 1 + static_cast<int32_t>(b % static_cast<uint32_t>(1 + k));
  r.waits = true;
  return true;
}

bool World::take_plan() {
  Step step;
  while (!m_.take_plan(step.plan)) {
    if (!step.plan.rows.empty() || !step.plan.copies.empty()) fail("a change plan has rows or copies");
    queue_.push_back(step);
  }
  for (const RowSpan& span : step.plan.rows) {
    Request& r = rows_[static_cast<size_t>(span.row.value())];
    step.rows.push_back({span, r, r.accepted});
    if (span.max_seq_len() != static_cast<int32_t>(r.tokens.size())) fail("a span does not end with the row");
    r.encoded = true;
    r.accepted = 0;
    r.state_column = 0;
  }
  queue_.push_back(std::move(step));
  return true;
}

void World::expect(const GroupView& g, RowId row, SlotId slot, uint64_t want, const char* what) {
  if (slot == kPadSlot) return fail(fmt::format("row {} group {}: {} is nowhere", row.value(), g.group.value(), what));
  if (cell(g, slot) != want)
    fail(fmt::format("row {} group {}: {} in slot {} is not the row's", row.value(), g.group.value(), what,
                     slot.value()));
}

// Every entry that a query at `pos` may see.
void World::check_reads(const GroupView& g, const GroupSpec& spec, const StepRow& row, int32_t pos) {
  const RowId id = row.span.row;
  const std::vector<int32_t>& tokens = row.request.tokens;
  switch (spec.kind) {
    case CacheKind::kFull:
    case CacheKind::kSink:
    case CacheKind::kSlidingWindow:
    case CacheKind::kChunkedLocal: {
      int32_t from = 0;
      if (spec.kind == CacheKind::kSlidingWindow) from = std::max(0, pos + 1 - spec.window);
      if (spec.kind == CacheKind::kChunkedLocal) from = pos - pos % spec.window;
      for (int32_t p = from; p <= pos; ++p) {
        if (p / spec.cp_interleave % spec.cp_world != spec.cp_rank) continue;
        expect(g, id, entry_slot(g, id, p), value(tokens, p), "an entry");
      }
      break;
    }
    case CacheKind::kCompressed:
      for (int32_t e = 0; e < (pos + 1) / spec.ratio; ++e)
        expect(g, id, entry_slot(g, id, e), value(tokens, e * spec.ratio + spec.ratio - 1), "a compressed entry");
      break;
    case CacheKind::kRing: {
      // Rows of the open window (and the one before it, where they overlap) that are older than the step.
      const int32_t from = std::max(0, pos / spec.ratio * spec.ratio - (spec.snapshot ? spec.ratio : 0));
      for (int32_t p = from; p < row.span.start; ++p)
        expect(g, id, entry_slot(g, id, p), value(tokens, p), "a ring row");
      break;
    }
    case CacheKind::kState: break;
    case CacheKind::kCross:
      for (int32_t p = 0; p < row.request.encoder_tokens; ++p)
        expect(g, id, entry_slot(g, id, p), encoder_value(p), "an encoder entry");
      break;
  }
}

// What a kernel finds that reads its blocks before a row's first entry is written (KV-4).
void World::check_zeros(const GroupView& g, RowId row) {
  for (int32_t c = g.first[row.value()]; c < g.width[row.value()]; ++c) {
    for (size_t i = 0; i < kPartEntries; ++i) {
      if (memory_.at(block_at(g, row, c).value()).at(part_of(g.group) + i) != 0)
        return fail(fmt::format("row {} group {}: a former owner's bytes (KV-4)", row.value(), g.group.value()));
    }
  }
}

void World::run_row(const GroupView& g, const GroupSpec& spec, const StepRow& row) {
  const RowId id = row.span.row;
  const std::vector<int32_t>& tokens = row.request.tokens;
  const int32_t start = row.span.start, end = row.span.max_seq_len();
  if (spec.kind == CacheKind::kState) {
    const StateId from = state_of(g, id, row.request.state_column);
    if (from == kNullState) return fail(fmt::format("row {} has no state", id.value()));
    if (start > 0 && memory_.at(from.value()).at(0) != value(tokens, start - 1))
      fail(fmt::format("row {}: the state in block {} is not the row's", id.value(), from.value()));
    // A verify step leaves the state after token i in column i, a plain one its last state in column 0.
    for (int32_t i = row.span_accepted > 0 ? start : end - 1; i < end; ++i) {
      const StateId to = state_of(g, id, row.span_accepted > 0 ? i - start : 0);
      if (to == kNullState) return fail("a state has no place");
      memory_.at(to.value()).at(0) = value(tokens, i);
    }
    return;
  }
  if (spec.kind == CacheKind::kCross && !row.request.encoded) {
    for (int32_t p = 0; p < row.request.encoder_tokens; ++p) {
      const SlotId slot = entry_slot(g, id, p);
      if (slot != kPadSlot) cell(g, slot) = encoder_value(p);
    }
  }
  if (spec.kind == CacheKind::kRing) check_reads(g, spec, row, start);
  if (spec.zeroed && start == 0) check_zeros(g, id);
  std::set<int64_t> written;
  for (int32_t pos = start; pos < end; ++pos) {
    const SlotId slot = write_slot(g, id, pos, end);
    if (slot != kPadSlot && !written.insert(slot.value()).second) fail("two tokens of a step race for a slot (RING-1)");
    if (slot != kPadSlot) cell(g, slot) = value(tokens, pos);
    if (write_slot(g, kNullRow, pos, end) != kPadSlot) fail("a padded token has a slot");
  }
  if (spec.kind == CacheKind::kRing) {
    // A verify step's rows leave the old ones whole; a longer chunk reads them before it writes.
    if (end - start <= 1 + m_.config().num_spec) check_reads(g, spec, row, start);
    return;
  }
  for (int32_t pos = start; pos < end; ++pos) check_reads(g, spec, row, pos);
}

void World::run(const Step& step) {
  mirror_.apply(step.plan);
  for (const BlockCopy& c : step.plan.copies) {
    for (const BlockCopy& other : step.plan.copies) {
      if (c.from == other.to || (&c != &other && c.to == other.to)) fail("copies of one plan depend on each other");
    }
    memory_.at(c.to.value()) = memory_.at(c.from.value());
  }
  for (const StepRow& row : step.rows) {
    for (int32_t g = 0; g < static_cast<int32_t>(m_.config().groups.size()); ++g)
      run_row(mirror_.view(GroupId(g)), m_.config().groups[static_cast<size_t>(g)], row);
  }
}

bool World::read_results() {
  if (done_.empty()) return false;
  const Step step = std::move(done_.front());
  done_.pop_front();
  m_.processed(step.plan.sequence);
  for (const StepRow& s : step.rows) {
    Request& r = rows_[static_cast<size_t>(s.span.row.value())];
    if (r.serial != s.request.serial) continue;  // it ended meanwhile
    int32_t end = s.span.max_seq_len();
    if (s.span_accepted > 0) {
      const int32_t rejected = s.span.query_len - s.span_accepted;
      m_.rollback(s.span.row, rejected);
      r.tokens.resize(r.tokens.size() - static_cast<size_t>(rejected));
      r.state_column = s.span_accepted - 1;
      r.waits = false;
      end -= rejected;
    }
    m_.set_processed(s.span.row, end);
  }
  return true;
}

// Writes, or checks, every byte of a transfer's blocks that the request's tokens define.
void World::touch(const Net& net, Access access) {
  for (const TransferBlock& b : net.blocks) {
    for (int32_t g = 0; g < static_cast<int32_t>(m_.config().groups.size()); ++g) {
      const GroupId group(g);
      if (table_of(m_.config().groups[static_cast<size_t>(g)], group) == b.group) touch_block(net, b, group, access);
    }
  }
}

void World::touch_block(const Net& net, const TransferBlock& b, GroupId group, Access access) {
  const std::vector<int32_t>& tokens = net.request.tokens;
  const auto n = static_cast<int32_t>(tokens.size());
  const auto entry = [&](int32_t offset, uint64_t v) {
    uint64_t& c = memory_.at(b.block.value()).at(part_of(group) + static_cast<size_t>(offset));
    if (access == Access::kWrite) c = v;
    if (c != v) fail(fmt::format("a transfer read somebody else's bytes from block {}", b.block.value()));
  };
  const GroupSpec& s = m_.config().groups[static_cast<size_t>(group.value())];
  const int32_t bs = s.block_size;
  switch (s.kind) {
    case CacheKind::kState:
      if (b.column == net.request.state_column) entry(0, value(tokens, n - 1));
      break;
    case CacheKind::kRing:
      if (b.column != 0) break;
      for (int32_t p = std::max(0, n / s.ratio * s.ratio - (s.snapshot ? s.ratio : 0)); p < n; ++p)
        entry(p % bs, value(tokens, p));
      break;
    case CacheKind::kCross:
      for (int32_t p = b.column * bs; p < std::min(net.request.encoder_tokens, (b.column + 1) * bs); ++p)
        entry(p % bs, encoder_value(p));
      break;
    case CacheKind::kCompressed:
      for (int32_t e = b.column * bs; e < std::min(n / s.ratio, (b.column + 1) * bs); ++e)
        entry(e % bs, value(tokens, e * s.ratio + s.ratio - 1));
      break;
    default:
      for (int32_t p = 0, local = 0; p < n; ++p) {
        if (p / s.cp_interleave % s.cp_world != s.cp_rank) continue;
        if (local / bs + sink_columns(s) == b.column) entry(local % bs, value(tokens, p));
        ++local;
      }
  }
}

bool World::transfer_op(Op op, TransferId id) {
  const Transfer& t = m_.transfer(id);
  Net& net = nets_[static_cast<size_t>(id.value())];
  if (op == Op::kClose) {
    if (t.state != TransferState::kDone && t.state != TransferState::kFailed) return false;
    m_.close(id);
    return true;
  }
  if (t.state != TransferState::kRunning) return false;
  if (op == Op::kExpire) {
    if (t.kind != TransferKind::kSend || t.expired) return false;
    m_.expire_leases(11);
    return true;
  }
  if (op == Op::kBeginOp) {
    if (t.ops_running >= t.ops_left || t.failed || t.expired) return false;
    m_.begin_op(id);
    if (!net.sending && net.early) touch(net, Access::kWrite);
    return true;
  }
  if (t.ops_running == 0) return false;
  // What an operation touches at its very end must still be the transfer's (XFER-1).
  if (net.sending || (!net.early && op == Op::kFinishOp)) touch(net, net.sending ? Access::kCheck : Access::kWrite);
  const RowId target = t.row;
  m_.finish_op(id, op == Op::kFinishOp);
  if (t.state == TransferState::kRunning || net.sending || target == kNullRow) return true;
  Request& r = rows_[static_cast<size_t>(target.value())];
  r.waits = false;
  if (t.state != TransferState::kDone) return true;
  r.tokens = net.request.tokens;
  r.encoded = true;
  r.state_column = 0;
  return true;
}

bool World::apply(Op op, uint32_t a, uint32_t b) {
  const RowId row = pick(a);
  Request* r = row == kNullRow ? nullptr : &rows_[static_cast<size_t>(row.value())];
  const bool idle = r != nullptr && !r->waits && !busy(row);
  switch (op) {
    case Op::kAdmit: return admit(a, b);
    case Op::kAppend: {
      const int32_t n = 1 + static_cast<int32_t>(b % 7);
      if (!idle || !m_.can_append(row, n)) return false;
      m_.append(row, n);
      for (int32_t i = 0; i < n; ++i) {
        // Mostly the family's next token, so that prefixes meet again.
        r->tokens.push_back(static_cast<int32_t>(a >> 8 & 1) * 1000 + static_cast<int32_t>(r->tokens.size()) +
                            (b % 11 == 10 ? 77 : 0));
      }
      return true;
    }
    case Op::kVerify: return idle && verify(row, *r, b);
    case Op::kTakePlan: return take_plan();
    case Op::kRunPlan:
      if (queue_.empty()) return false;
      run(queue_.front());
      done_.push_back(std::move(queue_.front()));
      queue_.pop_front();
      return true;
    case Op::kProcessed: return read_results();
    case Op::kRelease:
      if (r == nullptr) return false;
      m_.release(row);
      *r = Request{};
      return true;
    case Op::kFork: {
      if (!idle || r->tokens.empty() || m_.in_next_plan(row) || !m_.can_fork(row)) return false;
      const RowId child = m_.fork(row);
      rows_[static_cast<size_t>(child.value())] = *r;
      rows_[static_cast<size_t>(child.value())].serial = next_serial_++;
      return true;
    }
    case Op::kPublish:
      if (!idle || r->tokens.empty()) return false;
      m_.publish(row, {r->tokens}, r->state_column == 0);
      return true;
    case Op::kReset: m_.reset_prefix_cache(); return true;
    case Op::kSend: {
      if (!idle || r->tokens.empty() || !m_.can_send(row)) return false;
      const TransferId id = m_.send(row, 1 + static_cast<int32_t>(b % 2), 10);
      nets_[static_cast<size_t>(id.value())] = {true, false, *r, m_.transfer(id).blocks};
      return true;
    }
    case Op::kReceive: {
      const std::vector<int32_t> tokens = prompt(a, 1 + static_cast<int32_t>(b % static_cast<uint32_t>(max_prompt_)));
      const auto n = static_cast<int32_t>(tokens.size());
      if (!idle || !r->tokens.empty() || !m_.can_receive(row, n)) return false;
      const TransferId id = m_.receive(row, n, 1 + static_cast<int32_t>(b % 2));
      nets_[static_cast<size_t>(id.value())] = {false, b % 3 == 0, *r, m_.transfer(id).blocks};
      nets_[static_cast<size_t>(id.value())].request.tokens = tokens;
      r->waits = true;
      return true;
    }
    case Op::kBeginOp:
    case Op::kFinishOp:
    case Op::kFailOp:
    case Op::kExpire:
    case Op::kClose: return !nets_.empty() && transfer_op(op, TransferId(static_cast<int32_t>(a % nets_.size())));
    case Op::kCount: break;
  }
  return false;
}

std::string World::check() {
  for (const std::string& line : check_integrity(m_)) fail(line);
  for (uint64_t v : memory_[0]) {
    if (v != 0) fail("block 0 was written (PAD-8)");
  }
  if (queue_.empty() && m_.pending_changes().empty()) {
    for (const std::string& line : check_mirror(m_, mirror_)) fail(line);
  }
  return error_;
}

void World::wind_down() {
  for (size_t r = 1; r < rows_.size(); ++r) {
    if (rows_[r].serial != 0) m_.release(RowId(static_cast<int32_t>(r)));
    rows_[r] = Request{};
  }
  for (size_t i = 0; i < nets_.size(); ++i) {
    const TransferId id(static_cast<int32_t>(i));
    while (m_.transfer(id).state == TransferState::kRunning) {
      if (m_.transfer(id).ops_running == 0) m_.begin_op(id);
      m_.finish_op(id, false);
    }
    if (m_.transfer(id).state != TransferState::kFree) m_.close(id);
  }
  take_plan();
  while (apply(Op::kRunPlan, 0, 0)) {
  }
  while (apply(Op::kProcessed, 0, 0)) {
  }
  int32_t sinks = 0;
  for (const GroupSpec& s : m_.config().groups) sinks += sink_columns(s);
  if (m_.num_free_blocks() != m_.num_blocks() - 1 - sinks) fail("blocks are lost at the end");
  check();
}

uint64_t World::hash() const {
  Hasher h;
  const auto add_request = [&h](const Request& r) {
    h.add(r.serial != 0);
    h.add(static_cast<uint64_t>(r.state_column * 4 + r.encoded * 2 + r.waits));
    h.add(static_cast<uint64_t>(r.accepted));
    for (int32_t t : r.tokens) h.add(static_cast<uint64_t>(t));
  };
  h.add(m_.hash());
  for (const auto& block : memory_) {
    for (uint64_t v : block) h.add(v);
  }
  for (const Request& r : rows_) add_request(r);
  for (const auto* steps : {&queue_, &done_}) {
    h.add(steps->size());
    for (const Step& s : *steps) {
      h.add(s.plan.sequence);
      for (const StepRow& row : s.rows) {
        h.add(static_cast<uint64_t>(row.span.start) << 32 | static_cast<uint32_t>(row.span.query_len));
        h.add(rows_[static_cast<size_t>(row.span.row.value())].serial == row.request.serial);
        add_request(row.request);
      }
    }
  }
  for (const Net& net : nets_) {
    h.add(static_cast<uint64_t>(net.sending * 2 + net.early));
    add_request(net.request);
  }
  return h.value();
}

}  // namespace bz::kv
