#include "device/null/null_device.h"

#include <gtest/gtest.h>

#include "device/null/null_stream.h"
#include "device/registry.h"

namespace bz::device::null {
namespace {

struct Add {
  int* sum;
  int value;
};
void add(const Add& p) { *p.sum += p.value; }

TEST(NullDevice, IsChosenByItsName) {
  const auto device = create_device({.name = "null"});
  ASSERT_TRUE(device.ok());
  EXPECT_EQ((*device)->kind(), DeviceKind::kNull);
}

TEST(NullDevice, BuffersAreZeroAndAligned) {
  const auto device = create_null_device();
  const auto buffer = device->allocate(1000);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->device()) % 128, 0u);
  for (size_t i = 0; i < 1000; ++i) ASSERT_EQ(buffer->host<uint8_t>()[i], 0);
}

TEST(NullStream, RunsAtOnceOrReplaysWhatWasRecorded) {
  NullStream stream;
  int sum = 0;
  enqueue(stream, Add{&sum, 1}, &add);
  EXPECT_EQ(sum, 1);
  stream.begin_capture();
  Add node{&sum, 10};
  enqueue(stream, node, &add);
  node.value = 1000;  // the graph holds a copy
  const auto graph = stream.end_capture().value();
  EXPECT_EQ(sum, 1);
  EXPECT_EQ(graph->num_nodes(), 1u);
  stream.launch(*graph);
  stream.launch(*graph);
  EXPECT_EQ(sum, 21);
}

}  // namespace
}  // namespace bz::device::null
