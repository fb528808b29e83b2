#include "device/fault_hook.h"

#include <mutex>
#include <utility>

namespace bz::device {
namespace {

std::mutex g_mutex;
FaultHook g_hook = nullptr;
void* g_context = nullptr;

}  // namespace

void set_fault_hook(FaultHook hook, void* context) {
  const std::lock_guard lock(g_mutex);
  g_hook = hook;
  g_context = context;
}

void clear_fault_hook(void* context) {
  const std::lock_guard lock(g_mutex);
  if (g_context == context) g_hook = nullptr, g_context = nullptr;
}

void call_fault_hook(uint64_t step) {
  FaultHook hook = nullptr;
  void* context = nullptr;
  {
    const std::lock_guard lock(g_mutex);
    hook = std::exchange(g_hook, nullptr);
    context = g_context;
  }
  if (hook != nullptr) hook(context, step);
}

}  // namespace bz::device
