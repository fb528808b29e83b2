// kv/slot.h, compiled by nvcc, gives the host's answers: over the exhaustive cases of kv/slot_kinds_test.cc, where the
// host's are proved (PAD-2).
#include "device/slot_answers.h"
#include "device/twin.h"

namespace bz::test {
namespace {

using kv::SlotForm;

class Cases {
 public:
  // A table of garbage ids (the null row's too); `hole`: a cell of row 1 that holds the null block.
  kv::GroupView& add(SlotForm form, int32_t columns, int32_t block_size, int32_t max_position, int32_t width,
                     int32_t first, int32_t hole, int32_t begin, int32_t end, int32_t seq_end) {
    SlotCase c{};
    c.view = {nullptr, nullptr, nullptr, 2, columns, block_size, max_position, form};
    c.first_cell = static_cast<int32_t>(cells.size()), c.first_row = static_cast<int32_t>(widths.size());
    c.begin = begin, c.count = end - begin, c.seq_end = seq_end, c.first_answer = num_answers;
    for (int32_t i = 0; i < 2 * columns; ++i) cells.emplace_back(static_cast<uint32_t>(900 + i));
    if (hole >= 0) cells[cells.size() - static_cast<size_t>(columns - hole)] = kv::BlockId(0u);
    widths.push_back(5), widths.push_back(width);
    firsts.push_back(0), firsts.push_back(first);
    num_answers += c.count;
    cases.push_back(c);
    return cases.back().view;
  }

  std::vector<SlotCase> cases;
  std::vector<kv::BlockId> cells;
  std::vector<int32_t> widths, firsts;
  int64_t num_answers = 0;
};

void add_windowed(Cases& all) {
  for (int32_t bs = 1; bs <= 4; ++bs) {
    for (int32_t cells = 1; cells <= 4; ++cells) {
      for (int32_t width = 0; width <= 4 * cells + 1; ++width) {
        for (int32_t first = 0; first <= width; ++first) {
          for (int32_t hole = -1; hole < cells; ++hole) {
            const int32_t end = bs * (width + 2);
            kv::GroupView& g = all.add(SlotForm::kWindowed, cells, bs, end, width, first, hole, -1, end + 1, end);
            g.window = first, g.chunked = hole == 0;
          }
        }
      }
    }
  }
}

void add_compressed(Cases& all) {
  for (int32_t ratio : {1, 2, 3, 4, 8, 128}) {
    for (int32_t bs = 1; bs <= 4; ++bs) {
      for (int32_t columns = 1; columns <= 3; ++columns) {
        for (int32_t width = 0; width <= columns; ++width) {
          for (int32_t hole = -1; hole < columns; ++hole) {
            const int32_t tokens = ratio * bs * columns;
            all.add(SlotForm::kCompressed, columns, bs, tokens, width, 0, hole, -1, tokens + ratio, tokens + ratio)
                .ratio = ratio;
          }
        }
      }
    }
  }
}

void add_rings(Cases& all) {
  for (int32_t capacity = 1; capacity <= 12; ++capacity) {
    for (int32_t start = 0; start <= 3 * capacity + 1; ++start) {
      for (int32_t length = 1; length <= 2 * capacity + 3; ++length) {
        for (const int32_t hole : {-1, 0}) {
          for (const int32_t width : {0, 1}) {
            all.add(SlotForm::kRing, 1, capacity, 1000, width, 0, hole, start, start + length, start + length);
          }
        }
      }
    }
  }
}

void add_context_parallel(Cases& all) {
  for (int32_t world = 1; world <= 4; ++world) {
    for (int32_t interleave = 1; interleave <= 4; ++interleave) {
      for (int32_t bs = interleave; bs <= 8; bs += interleave) {
        for (int32_t rank = 0; rank < world; ++rank) {
          const int32_t tokens = bs * world * 3;
          kv::GroupView& g = all.add(SlotForm::kTokens, 3, bs, tokens, 3, 0, -1, -1, tokens + 1, tokens);
          g.cp_world = world, g.cp_rank = rank, g.cp_interleave = interleave;
        }
      }
    }
  }
}

void add_the_others(Cases& all) {
  for (int32_t bs = 1; bs <= 3; ++bs) {
    for (int32_t base = 0; base <= 2; ++base) {
      all.add(SlotForm::kTokens, 4, bs, bs * 4, 4, 0, -1, -1, bs * 4 + 1, bs * 4).base_column = base;
    }
  }
  for (int32_t width = 0; width <= 9; ++width) all.add(SlotForm::kState, 9, 1, 1000, width, 0, -1, -1, 11, 1000);
  all.add(SlotForm::kCross, 2, 4, 7, 2, 0, -1, -1, 10, 10);
  all.add(SlotForm::kTokens, 3, 16, 48, 3, 0, 1, -1, 49, 48);
}

TEST(Slot, TheSameAnswersOnTheDevice) {
  BZ_SKIP_WITHOUT_GPU();
  Cases all;
  add_windowed(all);
  add_compressed(all);
  add_rings(all);
  add_context_parallel(all);
  add_the_others(all);
  SlotAnswers poison{};
  poison.write = -77;
  std::vector<SlotAnswers> answers(static_cast<size_t>(all.num_answers), poison);
  slot_answers_on_device(all.cases, all.cells, all.widths, all.firsts, answers);
  const SlotArrays host{all.cells.data(), all.widths.data(), all.firsts.data()};
  int64_t differ = 0, pads = 0;
  for (size_t i = 0; i < all.cases.size(); ++i) {
    const SlotCase& c = all.cases[i];
    for (int32_t k = 0; k < c.count; ++k) {
      const SlotAnswers& device = answers[static_cast<size_t>(c.first_answer + k)];
      const bool same = device == slot_answers(c, host, c.begin + k);
      if (!same && differ++ == 0) ADD_FAILURE() << "case " << i << " position " << c.begin + k;
      pads += device.write < 0;
    }
  }
  EXPECT_EQ(differ, 0);
  EXPECT_GT(pads, 0);
  EXPECT_LT(pads, all.num_answers);
  std::printf("slot.h on the device: %zu cases, %lld positions\n", all.cases.size(),
              static_cast<long long>(all.num_answers));
}

}  // namespace
}  // namespace bz::test
