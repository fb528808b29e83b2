// What a process still does when the device has faulted: a kernel's fault ends the CUDA context, so the process is
// about to exit 1. The hook saves what the host knows. One hook a process, called at most once, by the thread that met
// the fault; it must not ask the device for anything.
#pragma once

#include <cstdint>

namespace bz::device {

using FaultHook = void (*)(void* context, uint64_t step);

void set_fault_hook(FaultHook hook, void* context);
// Removes the hook if it is this context's.
void clear_fault_hook(void* context);
// step: the number of the step that was waited for, 0 if none.
void call_fault_hook(uint64_t step);

}  // namespace bz::device
