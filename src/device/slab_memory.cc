#include "device/slab_memory.h"

namespace bz::device {

std::string_view null_guard_name(NullGuard guard) {
  switch (guard) {
    case NullGuard::kOff: return "off";
    case NullGuard::kReadOnly: return "read-only";
    case NullGuard::kHard: return "hard";
  }
  return "?";
}

}  // namespace bz::device
