#include "ops/op_table.h"

#include <cstdlib>

#include "ops/cpu/cpu_ops.h"
#if defined(BZ_CUDA)
#include "ops/cuda/cuda_ops.h"
#endif
#include "ops/null/null_ops.h"

namespace bz::ops {
namespace {

Result<const OpTable*> cpu_table() {
  const char* wanted = std::getenv("BLOCKZERO_ISA");
  if (wanted == nullptr || *wanted == '\0') return cpu::fastest_table();
  const std::string_view name = wanted;
  if (name != "reference" && name != "avx2" && name != "avx512-vnni") {
    return invalid_argument("BLOCKZERO_ISA={}: unknown; use reference, avx2 or avx512-vnni", name);
  }
  const OpTable* table = cpu::table_by_name(name);
  if (table == nullptr) {
    return invalid_argument("BLOCKZERO_ISA={}: this machine does not have it; unset it, or use {}", name,
                            cpu::fastest_table()->isa);
  }
  return table;
}

}  // namespace

Result<const OpTable*> op_table_for(device::DeviceKind kind, [[maybe_unused]] bool batch_invariant) {
  if (kind == device::DeviceKind::kCpu) return cpu_table();
  if (kind == device::DeviceKind::kNull) return &null::table();
#if defined(BZ_CUDA)
  if (kind == device::DeviceKind::kCuda) return cuda::table(batch_invariant);
#endif
  return invalid_argument("no ops for this device in this build; use --device cpu");
}

}  // namespace bz::ops
