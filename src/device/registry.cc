#include "device/registry.h"

#include <charconv>
#include <string_view>

#include "device/cpu/cpu_device.h"
#if defined(BZ_CUDA)
#include "device/cuda/cuda_device.h"
#endif
#include "device/null/null_device.h"

namespace bz::device {
namespace {

// The N of "cuda:N" or "cuda" (0); -1: not such a name.
int cuda_index(std::string_view name) {
  if (name == "cuda") return 0;
  if (!name.starts_with("cuda:")) return -1;
  name.remove_prefix(5);
  int index = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  return error == std::errc() && end == name.data() + name.size() && index >= 0 ? index : -1;
}

}  // namespace

Result<std::unique_ptr<Device>> create_device(const DeviceOptions& options) {
  if (options.name == "cpu") return cpu::create_cpu_device(options.num_threads);
  if (options.name == "null") return null::create_null_device();
  if (const int index = cuda_index(options.name); index >= 0) {
#if defined(BZ_CUDA)
    return cuda::create_cuda_device(index);
#else
    return invalid_argument("--device {}: this build has no CUDA; use cpu, or a build made by ./dev build cuda",
                            options.name);
#endif
  }
  return invalid_argument("--device {}: no such device; use cpu, cuda:N or null", options.name);
}

}  // namespace bz::device
