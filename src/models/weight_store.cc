#include "models/weight_store.h"

#include "models/random_weights.h"

namespace bz::models {
namespace {

constexpr uint32_t kDeviceAlign = 16;  // kernels read weights 16 bytes at a time

}  // namespace

Result<WeightStore> WeightStore::create(device::Device& device, const formats::GgufFile& file, bool random) {
  const std::byte* data = file.bytes().data() + file.data_offset();
  // The CPU reads them where they are mapped; the null device not at all.
  if (device.kind() != device::DeviceKind::kCuda) return WeightStore(data, data, {});
  if (file.alignment() % kDeviceAlign != 0) {
    return invalid_argument("{}: tensors are aligned to {} bytes, this device needs {}; use --device cpu", file.name(),
                            file.alignment(), kDeviceAlign);
  }
  const size_t bytes = file.bytes().size() - file.data_offset();
  BZ_ASSIGN(device::Buffer copy, device.allocate(bytes));
  if (random) {
    random_weights(bytes, [&](size_t offset, std::span<const std::byte> some) {
      device.copy_to_device(copy.device() + offset, some.data(), some.size());
    });
  } else {
    device.copy_to_device(copy.device(), data, bytes);
  }
  const std::byte* base = copy.device();
  return WeightStore(data, base, std::move(copy));
}

}  // namespace bz::models
