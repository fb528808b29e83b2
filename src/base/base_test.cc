#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/dtype.h"
#include "base/half.h"
#include "base/log.h"
#include "base/math.h"
#include "base/status.h"
#include "base/strong_id.h"

namespace bz {
namespace {

struct AppleTag;
struct PearTag;
using Apple = StrongId<AppleTag, uint32_t>;
using Pear = StrongId<PearTag, uint32_t>;

template <class A, class B>
concept Comparable = requires(A a, B b) { a == b; };

TEST(StrongId, DoesNotMixOrConvert) {
  static_assert(Comparable<Apple, Apple>);
  static_assert(!Comparable<Apple, Pear>);
  static_assert(!std::is_convertible_v<uint32_t, Apple>);
  static_assert(!std::is_convertible_v<Apple, uint32_t>);
  static_assert(!std::is_constructible_v<Apple, int64_t>);
  static_assert(!std::is_constructible_v<Apple, Pear>);
  EXPECT_LT(Apple(1u), Apple(2u));
}

TEST(Half, EveryF16ValueRoundTrips) {
  for (uint32_t h = 0; h <= 0xffff; ++h) {
    const float f = f16_to_f32(static_cast<uint16_t>(h));
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(f))));
    } else {
      ASSERT_EQ(f32_to_f16(f), h) << f;
    }
  }
}

TEST(Half, RoundsToNearestEven) {
  EXPECT_EQ(f32_to_f16(1.0f + 0x1p-11f), 0x3c00);      // tie to even: down
  EXPECT_EQ(f32_to_f16(1.0f + 3 * 0x1p-11f), 0x3c02);  // tie to even: up
  EXPECT_EQ(f32_to_f16(65519.0f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);  // rounds to infinity
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0);       // tie at half of the smallest subnormal
  EXPECT_EQ(f32_to_f16(-0x1.8p-25f), 0x8001);
  EXPECT_EQ(f32_to_bf16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(f32_to_bf16(1.0f + 3 * 0x1p-8f), 0x3f82);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(Math, RoundsAndDivides) {
  EXPECT_EQ(ceil_div(7, 4), 2);
  EXPECT_EQ(round_up(8, 4), 8);
  EXPECT_EQ(next_pow2(17), 32);
  EXPECT_FALSE(is_pow2(0));
}

TEST(DType, RowBytesOfQuantisedTypes) {
  EXPECT_EQ(row_bytes(DType::kQ4_1, 64), 40);
  EXPECT_EQ(row_bytes(DType::kQ8_0, 32), 34);
  EXPECT_EQ(row_bytes(DType::kBF16, 3), 6);
}

Result<int> half_of(int x) {
  if (x % 2 != 0) return invalid_argument("{} is odd", x);
  return x / 2;
}
Result<int> quarter_of(int x) {
  BZ_ASSIGN(const int h, half_of(x));
  return half_of(h);
}

TEST(Status, PropagatesTheFirstError) {
  EXPECT_EQ(quarter_of(12).value(), 3);
  EXPECT_EQ(quarter_of(6).status().message(), "3 is odd");
  EXPECT_EQ(quarter_of(6).status().exit_code(), 2);
  EXPECT_EQ(internal_error("x").exit_code(), 1);
}

TEST(Log, AMessageIsOneLineWhateverItNames) {
  testing::internal::CaptureStderr();
  log::error("{}: no such file", "a\nb\x1b[31m\x7f \xc3\xa4");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "blockzero: error: a\\nb\\x1b[31m\\x7f \xc3\xa4: no such file\n");
}

TEST(CheckDeathTest, PrintsBothValues) { EXPECT_DEATH(BZ_CHECK_EQ(1 + 1, 3), "2 vs 3"); }

}  // namespace
}  // namespace bz
