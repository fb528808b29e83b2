#include "kv/transfers.h"

#include <algorithm>

namespace bz::kv {

void pieces_of(const Transfer& transfer, int64_t block_stride, std::vector<Piece>& pieces) {
  BZ_CHECK_GT(block_stride, 0);
  pieces.clear();
  for (const TransferBlock& b : transfer.blocks) {
    BZ_CHECK(b.block != kNullBlock);  // PAD-1: registration starts at block 1
    pieces.push_back({static_cast<int64_t>(b.block.value()) * block_stride, block_stride});
  }
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
  size_t last = 0;
  for (size_t i = 1; i < pieces.size(); ++i) {
    if (pieces[last].offset + pieces[last].length == pieces[i].offset) {
      pieces[last].length += pieces[i].length;
    } else {
      pieces[++last] = pieces[i];
    }
  }
  if (!pieces.empty()) pieces.resize(last + 1);
}

}  // namespace bz::kv
