// Zeros in the empty rows of an output, on the GPU against the CPU.
#include "device/twin.h"

namespace bz::test {
namespace {

// Rows of every length around a cta's strip, padding at the end, in the middle, everywhere, nowhere.
TEST(ZeroRows, EqualsTheCpu) {
  BZ_SKIP_WITHOUT_GPU();
  for (const int32_t rows : {1, 2, 33, 300, 1500}) {
    for (const int32_t cols : {4, 256, 260, 1000}) {
      for (const bool tokens : {false, true}) {
        Twin twin(size_t{16} << 20, static_cast<uint32_t>(rows + cols));
        const auto n = static_cast<size_t>(rows);
        int32_t* seq_len = twin.take<int32_t>(n);
        int32_t* token_row = twin.take<int32_t>(n);
        for (int32_t r = 0; r < rows; ++r) {
          seq_len[r] = r >= rows - rows / 4 || twin.rng() % 3 == 0 ? 0 : 5;
          token_row[r] = static_cast<int32_t>(twin.rng() % static_cast<uint32_t>(rows + 1)) - 1;
        }
        float* out = twin.floats(n * static_cast<size_t>(cols + 4));
        const ops::ZeroRowsParams p{{out, DType::kF32, rows, cols, cols + 4}, seq_len, tokens ? token_row : nullptr};
        const ops::ZeroRowsParams d{twin.there(p.out), twin.there(seq_len), tokens ? twin.there(token_row) : nullptr};
        twin.run([&](device::Stream& s) { cpu_ops().zero_rows(s, p); },
                 [&](device::Stream& s) { cuda_ops().zero_rows(s, d); }, fmt::format("{} x {}", rows, cols).c_str());
      }
    }
  }
}

}  // namespace
}  // namespace bz::test
