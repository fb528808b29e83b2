// What admitting a kernel that is not ours must say of each fault (ops/foreign): the same cases on every device.
#pragma once

#include <gtest/gtest.h>

#include "ops/foreign/foreign_op.h"
#include "ops/foreign/test_kernel.h"

namespace bz::test {

inline void check_foreign_cases(device::Device& device, const ops::OpTable& ops,
                                ops::foreign::ForeignOp<ops::foreign::TestKernelParams>::Launch launch) {
  using namespace ops::foreign;
  struct Case {
    KernelFault fault;
    const char* refused;  // nullptr: admitted
  };
  for (const Case& c : {Case{KernelFault::kNone, nullptr}, Case{KernelFault::kDividesByLength, nullptr},
                        Case{KernelFault::kLeavesRows, nullptr},
                        Case{KernelFault::kClampAndMask, "lets bytes that no request owns into row 0"},
                        Case{KernelFault::kWholeTile, "lets bytes that no request owns into row 0"},
                        Case{KernelFault::kWritesBlockZero, "writes into memory that no request owns (region 0)"},
                        Case{KernelFault::kSkipsALiveRow, "live row 1"}}) {
    TestKernelStep host;
    const auto memory = std::move(device.allocate(sizeof(host)).value());
    device.copy_to_device(memory.device(), &host, sizeof(host));
    auto* there = memory.device<TestKernelStep>();
    const TestKernelParams p{there->cache, there->table, there->seq_len,
                             ops::tensor_f32(there->out, TestKernelStep::kRows, TestKernelStep::kCols), c.fault};
    const ops::ZeroRowsParams out{p.out, there->seq_len, nullptr};
    auto* bytes = reinterpret_cast<std::byte*>(there->cache);
    // Block 0, row 0's unfilled entry, block 3.
    const PoisonTrial trial{{{bytes, 16}, {bytes + 7 * 4, 4}, {bytes + 12 * 4, 16}}, out, TestKernelStep::kRows};
    const auto stream = device.create_stream();
    ForeignOp<TestKernelParams> op("test kernel", launch, ops);
    const Status status = op.admit(device, *stream, p, trial);
    if (c.refused != nullptr) {
      ASSERT_FALSE(status.ok()) << static_cast<int>(c.fault);
      EXPECT_NE(status.message().find(c.refused), std::string::npos) << status.message();
      continue;
    }
    ASSERT_TRUE(status.ok()) << status.message();
    const std::vector<float> nan(TestKernelStep::kRows * TestKernelStep::kCols,
                                 std::numeric_limits<float>::quiet_NaN());
    device.copy_to_device(there->out, nan.data(), sizeof(host.out));
    op(*stream, p, out);
    stream->synchronize();
    device.copy_to_host(host.out, there->out, sizeof(host.out));
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(host.out[i], 2.0f + static_cast<float>(i));
      EXPECT_EQ(host.out[4 + i], 5.5f + static_cast<float>(i));
      EXPECT_EQ(host.out[8 + i], 0.0f);
      EXPECT_EQ(host.out[12 + i], 0.0f);
    }
  }
}

}  // namespace bz::test
