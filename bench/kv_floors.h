// What B10 is measured beside: the least that a block list, an append and a match can do, and what comes first to mind.
#pragma once

#include <cstdlib>
#include <cstring>
#include <list>
#include <unordered_map>
#include <vector>

#include "kv/cache_plan.h"

namespace bz::bench {

// Two links and a count a node; node 0 is the sentinel.
class PlainList {
 public:
  explicit PlainList(uint32_t n) : links_(n) {
    for (uint32_t i = 1; i < n; ++i) push(i);
  }
  bool empty() const { return links_[0].next == 0; }
  uint32_t pop() {
    const uint32_t id = links_[0].next;
    links_[0].next = links_[id].next;
    links_[links_[id].next].prev = 0;
    links_[id].ref = 1;
    return id;
  }
  void push(uint32_t id) {
    if (--links_[id].ref > 0) return;
    const uint32_t last = links_[0].prev;
    links_[id].prev = last;
    links_[id].next = 0;
    links_[last].next = id;
    links_[0].prev = id;
  }

 private:
  struct Link {
    uint32_t prev = 0, next = 0;
    int32_t ref = 1;
  };
  std::vector<Link> links_;
};

// What comes first to mind: a list of free ids, and a map from an id to its owner count.
class StdPool {
 public:
  explicit StdPool(uint32_t n) {
    for (uint32_t i = 1; i < n; ++i) free_.push_back(i);
  }
  uint32_t pop() {
    const uint32_t id = free_.front();
    free_.pop_front();
    owners_.emplace(id, 1);
    return id;
  }
  void push(uint32_t id) {
    owners_.erase(id);
    free_.push_back(id);
  }

 private:
  std::list<uint32_t> free_;
  std::unordered_map<uint32_t, int> owners_;
};

// The least that any append must do, behind the same call: find the row by its id, see whether its blocks hold the
// tokens, note it for the batch, count; at the end of a block take a free one (there must be one), store it, and tell
// the device. One group of full attention; no window, prefix, transfer or fork; nothing else is checked.
class LeastCache {
 public:
  LeastCache(int32_t num_rows, int32_t columns, int32_t block_size)
      : free_(static_cast<uint32_t>(num_rows * columns + 1)),
        rows_(static_cast<size_t>(num_rows) + 1),
        table_((static_cast<size_t>(num_rows) + 1) * static_cast<size_t>(columns)),
        columns_(columns),
        block_size_(block_size) {
    batch_.reserve(static_cast<size_t>(num_rows));
    changes_.reserve(static_cast<size_t>(2 * num_rows));
  }
  void append(kv::RowId id, int32_t num_tokens) {
    Row& row = rows_[static_cast<size_t>(id.value())];
    if (row.scheduled + num_tokens > row.capacity) [[unlikely]]
      grow(id, row, num_tokens);
    if (row.scheduled == row.planned) batch_.push_back(id);
    row.scheduled += num_tokens;
  }
  // Everything appended is planned.
  void end_step() {
    for (kv::RowId id : batch_)
      rows_[static_cast<size_t>(id.value())].planned = rows_[static_cast<size_t>(id.value())].scheduled;
    batch_.clear();
    changes_.clear();
  }
  void release_all() {
    for (size_t r = 0; r < rows_.size(); ++r) {
      for (int32_t c = 0; c < rows_[r].width; ++c)
        free_.push(table_[r * static_cast<size_t>(columns_) + static_cast<size_t>(c)]);
      rows_[r] = {};
    }
  }

 private:
  struct Row {
    int32_t scheduled = 0, planned = 0, capacity = 0, width = 0;
  };
  [[gnu::noinline]] void grow(kv::RowId id, Row& row, int32_t num_tokens) {
    for (; row.scheduled + num_tokens > row.capacity; row.capacity += block_size_, ++row.width) {
      if (free_.empty()) std::abort();
      const uint32_t block = free_.pop();
      table_[static_cast<size_t>(id.value() * columns_ + row.width)] = block;
      changes_.emplace_back(kv::ChangeKind::kBlock, kv::GroupId(0), id, row.width, block);
    }
    changes_.emplace_back(kv::ChangeKind::kWidth, kv::GroupId(0), id, 0, static_cast<uint32_t>(row.width));
  }

  PlainList free_;
  std::vector<Row> rows_;
  std::vector<uint32_t> table_;  // [rows][columns]
  std::vector<kv::RowId> batch_;
  std::vector<kv::TableChange> changes_;
  int32_t columns_, block_size_;
};

}  // namespace bz::bench
