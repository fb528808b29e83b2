// Kernels that are not ours, on the CPU: which are refused, and what zero_rows makes of the others.
#include "support/foreign_cases.h"

#include "device/cpu/cpu_stream.h"
#include "device/registry.h"

namespace bz::test {
namespace {

using ops::foreign::TestKernelParams;

void launch(device::Stream& stream, const TestKernelParams& p) {
  device::cpu::enqueue<TestKernelParams>(stream, "test kernel", p,
                                         [](const TestKernelParams& q, device::cpu::Worker& w) {
                                           w.parallel_for(q.out.rows, 1, [&](int64_t begin, int64_t end) {
                                             for (int64_t r = begin; r < end; ++r)
                                               ops::foreign::test_kernel_row(q, static_cast<int32_t>(r));
                                           });
                                         });
}

TEST(Foreign, FaultsThatCannotBeRepairedAreRefused) {
  const auto device = device::create_device({.name = "cpu"});
  ASSERT_TRUE(device.ok());
  check_foreign_cases(**device, **ops::op_table_for(device::DeviceKind::kCpu), launch);
}

// A kernel that nobody tried cannot be enqueued.
TEST(ForeignDeathTest, NotBeforeThePoisonTest) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto device = device::create_device({.name = "cpu"});
  const ops::foreign::ForeignOp<TestKernelParams> op("test kernel", launch,
                                                     **ops::op_table_for(device::DeviceKind::kCpu));
  const auto stream = (*device)->create_stream();
  EXPECT_DEATH(op(*stream, {}, {}), "test kernel has not passed the poison test");
}

}  // namespace
}  // namespace bz::test
