#include "device/cpu/fault_handler.h"

#include <unistd.h>
#include <csignal>
#include <cstring>
#include <mutex>

#include "base/check.h"

namespace bz::device::cpu {
namespace {

thread_local const FaultScope* t_scope = nullptr;

constexpr int kMaxRanges = 16;
// Written under the mutex, read by the handler: entries are complete before `used` is set.
struct RangeEntry {
  GuardedRange range;
  volatile sig_atomic_t used = 0;
};
RangeEntry g_ranges[kMaxRanges];
std::mutex g_mutex;
bool g_installed = false;

// Builds one line without allocating: only async-signal-safe calls are allowed here.
class Line {
 public:
  Line& text(const char* s) {
    while (*s != '\0' && size_ < sizeof(buffer_) - 1) buffer_[size_++] = *s++;
    return *this;
  }
  Line& number(int64_t v) {
    if (v < 0) {
      text("-");
      v = -v;
    }
    char digits[24];
    int n = 0;
    do {
      digits[n++] = static_cast<char>('0' + v % 10);
      v /= 10;
    } while (v != 0);
    while (n > 0 && size_ < sizeof(buffer_) - 1) buffer_[size_++] = digits[--n];
    return *this;
  }
  void print() {
    buffer_[size_++] = '\n';
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, buffer_, size_);
  }

 private:
  char buffer_[512];
  size_t size_ = 0;
};

void describe_place(Line& line, const GuardedRange& r, const std::byte* address) {
  const int64_t offset = address - r.base;
  if (offset < 0) {
    line.text(" ").number(-offset).text(" bytes below block 0 (slot -1)");
  } else if (offset < r.block_stride) {
    line.text("block 0, the null block, at byte ").number(offset);
  } else if (offset >= r.block_stride * r.num_blocks) {
    line.text("past the last block (")
        .number(r.num_blocks - 1)
        .text(") by ")
        .number(offset - r.block_stride * r.num_blocks)
        .text(" bytes");
  } else {
    line.text("block ").number(offset / r.block_stride);
  }
}

}  // namespace

struct FaultHandlerAccess {
  static void describe_op(Line& line) {
    const FaultScope* scope = t_scope;
    if (scope == nullptr) {
      line.text(" outside any op");
      return;
    }
    line.text(" by op ").text(scope->op_).text(", layer ").number(scope->layer_).text(", step ");
    line.number(static_cast<int64_t>(scope->step_));
  }
};

namespace {

void on_fault(int signal, siginfo_t* info, void*) {
  const auto* address = static_cast<const std::byte*>(info->si_addr);
  for (const RangeEntry& entry : g_ranges) {
    if (!entry.used || address < entry.range.reserved_begin || address >= entry.range.reserved_end) continue;
    Line line;
    line.text("blockzero: guard fault: access to ");
    describe_place(line, entry.range, address);
    FaultHandlerAccess::describe_op(line);
    line.text("; stopping (--null-guard)");
    line.print();
    _exit(1);
  }
  Line line;
  line.text(signal == SIGBUS ? "blockzero: bus error (was a model file changed or truncated while in use?)"
                             : "blockzero: memory fault");
  FaultHandlerAccess::describe_op(line);
  line.print();
  std::signal(signal, SIG_DFL);  // returning repeats the access: the default action, with a core dump
}

void install() {
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  BZ_CHECK_EQ(sigaction(SIGSEGV, &action, nullptr), 0);
  BZ_CHECK_EQ(sigaction(SIGBUS, &action, nullptr), 0);
}

}  // namespace

FaultScope::FaultScope(const char* op, int32_t layer, uint64_t step)
    : op_(op), layer_(layer), step_(step), outer_(t_scope) {
  t_scope = this;
}
FaultScope::~FaultScope() { t_scope = outer_; }

void register_guarded_range(const GuardedRange& range) {
  const std::lock_guard lock(g_mutex);
  if (!g_installed) {
    install();
    g_installed = true;
  }
  for (RangeEntry& entry : g_ranges) {
    if (entry.used) continue;
    entry.range = range;
    entry.used = 1;
    return;
  }
  BZ_CHECK_MSG(false, "more than {} slab mappings at once", kMaxRanges);
}

void unregister_guarded_range(const std::byte* reserved_begin) {
  const std::lock_guard lock(g_mutex);
  for (RangeEntry& entry : g_ranges) {
    if (entry.used && entry.range.reserved_begin == reserved_begin) entry.used = 0;
  }
}

}  // namespace bz::device::cpu
