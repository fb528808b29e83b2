// A kernel that is not ours, made safe for padding. Such a kernel may
//   (a) leave something in the rows of padding: nothing written, NaN, 0/0 (F12, F13): repaired after it, by zero_rows;
//   (b) look at bytes that no request owns, and let them into a live row: clamp and mask, whole tiles (F14, F17). That
//       cannot be repaired: before a kernel serves it is run on a trial step whose unowned bytes are poison, and
//       refused;
//   (c) write where nobody should: block 0, free blocks (F01 to F05): found by the same trial, and refused.
//
// Owned by one thread. A kernel is admitted once for a device and a shape; then it runs in every step, captured too.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "ops/op_table.h"

namespace bz::ops::foreign {

// A step to try a kernel on: device memory, live rows' own bytes filled in by the caller, at least one row padded.
struct PoisonTrial {
  struct Region {
    std::byte* data;
    size_t bytes;
  };
  std::vector<Region> unowned;  // block 0, free blocks, unfilled slots, padded rows' inputs: whatever no live row owns
  ZeroRowsParams out;           // what the kernel writes, and whose rows they are
  int32_t num_rows;             // R of out.seq_len
};

// Runs `kernel` with zero_rows after it, three times, over the same live bytes; the unowned ones are zeros, zeros, NaN.
// Not ok, with one line: a live row's bits moved with them, or from run to run, or are NaN; a padded row is not zeros;
// an unowned byte was written.
Status poison_test(device::Device& device, device::Stream& stream, const OpTable& ops, std::string_view name,
                   const std::function<void()>& kernel, const PoisonTrial& trial);

template <class Params>
class ForeignOp {
 public:
  using Launch = void (*)(device::Stream&, const Params&);
  ForeignOp(std::string name, Launch launch, const OpTable& ops) : name_(std::move(name)), launch_(launch), ops_(ops) {}

  // The poison test. params: of the trial.
  Status admit(device::Device& device, device::Stream& stream, const Params& params, const PoisonTrial& trial) {
    const Status status = poison_test(device, stream, ops_, name_, [&] { launch_(stream, params); }, trial);
    admitted_ = status.ok();
    return status;
  }

  // Enqueues the kernel and zeros in its rows of padding. REQUIRES: admitted.
  void operator()(device::Stream& stream, const Params& params, const ZeroRowsParams& out) const {
    BZ_CHECK_MSG(admitted_, "{} has not passed the poison test", name_);
    launch_(stream, params);
    ops_.zero_rows(stream, out);
  }

 private:
  std::string name_;
  Launch launch_;
  const OpTable& ops_;
  bool admitted_ = false;
};

}  // namespace bz::ops::foreign
