// A whole world around a CacheManager, for tests: a pretend device that runs plans late and in order, a pretend network
// that reads and writes whenever it may, and requests whose every cached byte is known.
//
// What a slot holds is a hash of the request's tokens up to it, so that equal prefixes are equal bytes and anything
// else is different. A step checks that every entry its queries may see is the right one; every write goes through
// slot.h and the device's own copy of the tables. Copyable and hashable: random walks and exhaustive search use it.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "kv/cache_manager.h"
#include "kv/hash.h"
#include "kv/integrity.h"
#include "kv/table_mirror.h"

namespace bz::kv {

enum class Op : uint8_t {
  kAdmit,
  kAppend,
  kVerify,
  kTakePlan,
  kRunPlan,
  kProcessed,
  kRelease,
  kFork,
  kPublish,
  kReset,
  kSend,
  kReceive,
  kBeginOp,
  kFinishOp,
  kFailOp,
  kExpire,
  kClose,
  kCount
};

class World {
 public:
  World(const CacheConfig& config, int32_t max_prompt)
      : m_(config), mirror_(config), max_prompt_(max_prompt), memory_(static_cast<size_t>(config.num_blocks)) {
    const size_t entries = kPartEntries * config.groups.size();
    for (auto& block : memory_) block.assign(entries, 0xdead);
    memory_[0].assign(entries, 0);
    rows_.resize(static_cast<size_t>(config.max_rows));
    nets_.resize(static_cast<size_t>(config.max_transfers));
  }

  // Does the op, with two numbers that choose row, transfer, prompt and counts, if it makes sense now.
  bool apply(Op op, uint32_t a, uint32_t b);
  // What went wrong first; empty: nothing so far.
  std::string check();
  // Everything ends: rows, transfers, steps. Every block but the sinks must be free then.
  void wind_down();

  const CacheManager& manager() const { return m_; }
  uint64_t hash() const;

 private:
  static constexpr size_t kPartEntries = 16;  // of each group that shares a table, in every block
  struct Request {
    uint64_t serial = 0;          // 0: the row is not in use
    std::vector<int32_t> tokens;  // that the cache holds, or will once the plans have run
    int32_t encoder_tokens = 0;
    int32_t state_column = 0;  // where the row's state will be
    bool encoded = false;
    bool waits = false;    // for a verify step or a load
    int32_t accepted = 0;  // > 0: its part of the next plan is a verify step, and so many tokens will be accepted
  };
  struct StepRow {
    RowSpan span;
    Request request;
    int32_t span_accepted = 0;
  };
  struct Step {
    CachePlan plan;
    std::vector<StepRow> rows;
  };
  struct Net {
    bool sending = false;
    bool early = false;  // a receive's bytes land when an operation begins; else when it finishes
    Request request;
    std::vector<TransferBlock> blocks;
  };
  enum class Access : uint8_t { kWrite, kCheck };

  static uint64_t value(const std::vector<int32_t>& tokens, int32_t pos) {
    Hasher h;
    for (int32_t i = 0; i <= pos; ++i) h.add(static_cast<uint64_t>(tokens[static_cast<size_t>(i)]));
    return h.value();
  }
  static uint64_t encoder_value(int32_t pos) { return 0xe0c0de00u + static_cast<uint64_t>(pos); }
  static std::vector<int32_t> prompt(uint32_t a, int32_t length);

  void fail(const std::string& what) {
    if (error_.empty()) error_ = what;
  }
  RowId pick(uint32_t a) const;
  bool busy(RowId row) const;  // a transfer of the row runs
  // Groups that share a table have parts of their own in its blocks; those that own one have the first.
  size_t part_of(GroupId group) const {
    const GroupSpec& spec = m_.config().groups[static_cast<size_t>(group.value())];
    return spec.table_of == kOwnTable ? 0 : kPartEntries * static_cast<size_t>(group.value());
  }
  uint64_t& cell(const GroupView& g, SlotId slot) {
    return memory_.at(static_cast<size_t>(slot.value() / g.block_size))
        .at(part_of(g.group) + static_cast<size_t>(slot.value() % g.block_size));
  }
  bool admit(uint32_t a, uint32_t b);
  bool verify(RowId row, Request& r, uint32_t b);
  bool take_plan();
  void run(const Step& step);
  void run_row(const GroupView& g, const GroupSpec& spec, const StepRow& row);
  void expect(const GroupView& g, RowId row, SlotId slot, uint64_t want, const char* what);
  void check_zeros(const GroupView& g, RowId row);
  void check_reads(const GroupView& g, const GroupSpec& spec, const StepRow& row, int32_t pos);
  bool read_results();
  bool transfer_op(Op op, TransferId id);
  void touch(const Net& net, Access access);
  void touch_block(const Net& net, const TransferBlock& b, GroupId group, Access access);

  CacheManager m_;
  TableMirror mirror_;
  int32_t max_prompt_;
  std::vector<std::vector<uint64_t>> memory_;  // [block][entry]
  std::vector<Request> rows_;                  // [max_rows]
  std::vector<Net> nets_;                      // [max_transfers]
  std::deque<Step> queue_;                     // taken, not run
  std::deque<Step> done_;                      // run, results not read
  uint64_t next_serial_ = 1;
  std::string error_;
};

struct NamedConfig {
  const char* name;
  CacheConfig config;
};
// Small caches of every kind, alone and mixed as the released models mix them.
std::vector<NamedConfig> world_configs();

// `steps` operations chosen by a seed; then everything ends. What went wrong, with the step; empty: nothing.
// applied: [Op::kCount] how often each operation was done, or nullptr.
std::string random_walk(const CacheConfig& config, uint64_t seed, int steps, std::vector<int64_t>* applied);

}  // namespace bz::kv
