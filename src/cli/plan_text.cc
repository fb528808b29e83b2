#include "cli/plan_text.h"

#include <iterator>

#include <fmt/format.h>

namespace bz::cli {

std::string describe(const kv::Layout& layout) {
  std::string text;
  auto out = std::back_inserter(text);
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    const kv::GroupLayout& group = layout.groups[g];
    fmt::format_to(out, "group {}: {}, {} layers, blocks of {} entries, page {} bytes, slab {}", g,
                   kv::cache_kind_name(group.spec.kind), group.layers.size(), group.spec.block_size,
                   group.layers[0].page_bytes, group.used_bytes);
    if (group.spec.table_of == kv::kOwnTable) {
      fmt::format_to(out, " + waste {} bytes\n", layout.block_stride - table_bytes(layout, g));
    } else {
      fmt::format_to(out, " bytes of group {}'s\n", group.spec.table_of);
    }
  }
  fmt::format_to(out, "null block and its guard granules: {} bytes\n", layout.head_bytes);
  fmt::format_to(out, "blocks 1 to {}: {} bytes ({} each)\n", layout.num_blocks - 1, layout.body_bytes,
                 layout.block_stride);
  fmt::format_to(out, "end: {}\n",
                 layout.tail_bytes == 0 ? "on a granule" : fmt::format("canary of {} bytes", layout.tail_bytes));
  fmt::format_to(out, "total: {} bytes\n", layout.total_bytes);
  for (const std::string& note : layout.notes) fmt::format_to(out, "note: {}\n", note);
  return text;
}

}  // namespace bz::cli
