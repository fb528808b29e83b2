// For tests: the tables as a device has them, brought about by plans alone (PAD-10).
#pragma once

#include <string>
#include <vector>

#include "kv/cache_manager.h"

namespace bz::kv {

// A copy of the tables as a device has them: zeroes, plus the changes of the plans it was given (PAD-10).
class TableMirror {
 public:
  explicit TableMirror(const CacheConfig& config);
  void apply(const CachePlan& plan);  // REQUIRES: plan.sequence == the last one + 1

  uint64_t sequence() const { return sequence_; }
  // The tables as device functions see them. Valid while this object lives.
  GroupView view(GroupId group) const;  // any group's
  int32_t width(GroupId group, RowId row) const { return view(group).width[row.value()]; }

 private:
  struct Group {
    GroupView shape{};
    GroupId table{0};  // whose arrays it reads
    std::vector<BlockId> blocks;
    std::vector<int32_t> width, first;
  };
  std::vector<Group> groups_;
  uint64_t sequence_ = 0;
};

// The mirror has taken every plan and nothing is pending: its rows must read exactly as the host's do.
std::vector<std::string> check_mirror(const CacheManager& manager, const TableMirror& mirror);

}  // namespace bz::kv
