// What TableMirror does (table_mirror.h).
#include "kv/table_mirror.h"

namespace bz::kv {

TableMirror::TableMirror(const CacheConfig& config) {
  const BlockTables shape(config.max_rows, table_shapes(config));
  for (size_t g = 0; g < config.groups.size(); ++g) {
    const GroupId group(static_cast<int32_t>(g));
    const GroupView view = shape.view(group);
    const auto rows = static_cast<size_t>(view.num_rows);
    groups_.push_back({view, table_of(config.groups[g], group),
                       std::vector<BlockId>(rows * static_cast<size_t>(view.max_blocks_per_row), kNullBlock),
                       std::vector<int32_t>(rows, 0), std::vector<int32_t>(rows, 0)});
  }
}

GroupView TableMirror::view(GroupId group) const {
  GroupView view = groups_.at(static_cast<size_t>(group.value())).shape;
  const Group& g = groups_.at(static_cast<size_t>(groups_[static_cast<size_t>(group.value())].table.value()));
  view.table = g.blocks.data();
  view.width = g.width.data();
  view.first = g.first.data();
  return view;
}

void TableMirror::apply(const CachePlan& plan) {
  BZ_CHECK_EQ(plan.sequence, sequence_ + 1);
  sequence_ = plan.sequence;
  for (const TableChange& change : plan.changes) {
    BZ_CHECK(change.row != kNullRow);  // PAD-3: nobody writes the null row
    Group& group = groups_.at(static_cast<size_t>(change.group.value()));
    const auto row = static_cast<size_t>(change.row.value());
    const auto columns = static_cast<size_t>(group.shape.max_blocks_per_row);
    switch (change.kind) {
      case ChangeKind::kBlock:
        BZ_CHECK_LT(static_cast<size_t>(change.column), columns);
        group.blocks.at(row * columns + static_cast<size_t>(change.column)) = BlockId(change.value);
        break;
      case ChangeKind::kWidth: group.width.at(row) = static_cast<int32_t>(change.value); break;
      case ChangeKind::kFirst: group.first.at(row) = static_cast<int32_t>(change.value); break;
      case ChangeKind::kRowStart: break;
    }
  }
}

std::vector<std::string> check_mirror(const CacheManager& m, const TableMirror& mirror) {
  std::vector<std::string> wrong;
  if (mirror.sequence() != m.last_sequence() || !m.pending_changes().empty())
    wrong.push_back(fmt::format("the mirror is at plan {}, the host at {} with {} changes pending", mirror.sequence(),
                                m.last_sequence(), m.pending_changes().size()));
  for (int32_t g = 0; g < static_cast<int32_t>(m.config().groups.size()); ++g) {
    const GroupView host = m.tables().view(GroupId(g)), copy = mirror.view(GroupId(g));
    for (int32_t r = 0; r < m.tables().num_rows(); ++r) {
      const int32_t first = host.first[r], width = host.width[r];
      if (copy.width[r] != width || copy.first[r] != first)
        wrong.push_back(fmt::format("row {} group {}: columns [{}, {}) on the host, [{}, {}) in the mirror", r, g,
                                    first, width, copy.first[r], copy.width[r]));
      for (int32_t c = first; c < width; ++c) {
        const BlockId here = block_at(host, RowId(r), c), there = block_at(copy, RowId(r), c);
        if (here != there)
          wrong.push_back(fmt::format("row {} group {} column {}: block {} on the host, {} in the mirror", r, g, c,
                                      here.value(), there.value()));
      }
    }
  }
  return wrong;
}

}  // namespace bz::kv
